"""Tools tried out in a browser: forms made of their schemas, and calls as the person who is signed in."""
