"""What a GPU does with this project, measured in parts that do not need each other: `make gpu`."""
