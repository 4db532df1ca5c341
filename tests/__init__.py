import gc

gc.disable()  # until all tests are collected: what is imported stays
