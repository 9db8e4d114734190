def write_page(found):
    return ""
