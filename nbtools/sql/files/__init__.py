r"""Files in SQL: how files are read, and how that is said where what was found in them is wrong.

A file stands in quotes behind FROM, in a query or in %explore:

    FROM 'sales.csv'
    FROM 'sales.csv.gz'
    FROM 'parts/*.csv'

CSV, TSV, JSON, JSON lines, Parquet, Excel and OpenDocument are read. What SQL has no reader for (feather, Stata, SPSS,
zip, …) %%data_analyze 'FILE' reads as pandas does.

Types are decided by all lines of a text file up to 100 MB. Of a larger one the first 20,480 lines decide, which is
told. A later value that its column's type would change is an error in CSV. In JSON, whose reader has no strict form, it
is cast (1.5 is 2 among whole numbers). Neither happens where all lines are looked at, or the types are said:

    FROM read_csv('sales.csv', sample_size = -1)
    FROM read_csv('sales.csv', types = {'code': 'VARCHAR'})

Missing words. If a column has numbers, dates or truth values and otherwise only N/A, NA, n/a, null, NULL, None, -,
#N/A, nan or \N, these words are missing values, and a note says how many. Columns of text keep them: NA stays the code
of Namibia. Other words, or none:

    FROM read_csv('sales.csv', nullstr = ['', 'unknown'])
    FROM read_csv('sales.csv', nullstr = '')

Numbers such as 1,234.5 are text until the sign between thousands is named. Each column of dates is read in the order
that its own cells prove. Dates of several forms, or with years of two digits and of four, are text until a query reads
them. %Y reads 25 as the year 25, so %y, which reads it as 2025, comes before it. A point is the decimal sign; in a file
with semicolons, a note says where all points may separate thousands. If another column has decimal commas, they do, and
a note says so:

    FROM read_csv('sales.csv', thousands = ',')
    FROM read_csv('umsatz.csv', decimal_separator = ',', thousands = '.')
    select coalesce(try_strptime(day, ['%Y-%m-%d', '%d.%m.%y', '%d.%m.%Y'])) as day FROM 'sales.csv'

What a text file looks like is found out; each of these says it instead:

    FROM read_csv('sales.csv', delim = ',', quote = '"', header = true)
    FROM read_csv('report.csv', skip = 2, delim = ';', decimal_separator = ',')
    FROM read_csv('sales.csv', comment = '#')
    FROM read_csv('sales.csv', ignore_errors = true)
    FROM read_csv('notes.txt', delim = '|')

Encodings. UTF-8 and UTF-16 are seen; any other one is named, as Python calls it:

    FROM read_csv('japan.csv', encoding = 'shift_jis')
    FROM read_csv('western.csv', encoding = 'cp1252')

Workbooks. The first sheet and its first row are read, and the other sheets are told. A sheet has a name or a number; a
range may leave out letters or numbers; the header may be a row's number, or false:

    FROM read_xlsx('book.xlsx', sheet = 'Managers')
    FROM read_xlsx('book.xlsx', sheet = 2, range = 'A2:B9', header = false)

A formula has the value that was stored with it. A file that is locked by a password is not read.
"""
