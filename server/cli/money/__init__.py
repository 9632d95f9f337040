"""Commands about money: the books, plans, vouchers, wallets, receipts."""
