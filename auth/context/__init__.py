"""The parts that every endpoint and every page is handed."""
