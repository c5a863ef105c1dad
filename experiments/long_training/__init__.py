"""Which way to choose a learning rate is best for long training runs, given the same time?"""
