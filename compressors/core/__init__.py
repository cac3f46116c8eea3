"""The algebra: segments, codecs, payloads, reducers, transports and communicators."""
