"""The algebra of gradient compression: codecs, reducers, composition and one file per method."""
