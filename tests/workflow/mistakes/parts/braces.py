print("${inputs.x}")
