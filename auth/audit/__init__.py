"""The audit trail: a row for every decision, and how rows are found and worded."""
