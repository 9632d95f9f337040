"""What the owner of a server wants to know at a glance: values read from the store and from what runs, and the pages that show them."""
