"""Image datasets: files, decoding, augmentation."""
