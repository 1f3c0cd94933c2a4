def forward(x):
    return 2 * x
