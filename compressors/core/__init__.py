"""The algebra: segments, codecs, reducers, transports and backends."""
