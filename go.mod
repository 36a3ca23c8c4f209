module walproxy

go 1.26
