def mix(x, extra, **attributes):
    return x, extra
