"""The store on PostgreSQL: connections that are made again, transactions, errors, schema."""
