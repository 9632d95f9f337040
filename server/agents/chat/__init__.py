"""What was said in conversations, so that all processes of an installation know it."""
