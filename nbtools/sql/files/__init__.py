r"""Files in SQL: how nbtools reads files, and how a query corrects what nbtools detected wrongly.

Write the name of a file in quotes after FROM, in a query or in %explore:

    FROM 'sales.csv'
    FROM 'sales.csv.gz'
    FROM 'parts/*.csv'

CSV, TSV, JSON, JSON lines, Parquet, Excel and OpenDocument are read. For formats that SQL cannot read (feather, Stata,
SPSS, zip, …), use %%data_analyze 'FILE', which reads them with pandas.

Types. All lines of a text file up to 100 MB decide the types of its columns. In a larger file only the first 20,480
lines decide, and a note says so. A later value that does not fit the type of its column is an error in CSV. In JSON it
is cast to that type (1.5 becomes 2 among whole numbers). To prevent both, have all lines read, or name the types:

    FROM read_csv('sales.csv', sample_size = -1)
    FROM read_csv('sales.csv', types = {'code': 'VARCHAR'})

Missing values. If a column has numbers, dates or truth values and otherwise only N/A, NA, n/a, null, NULL, None, -,
#N/A, nan or \N, these words are missing values, and a note says how many. Columns of text keep them: NA stays the code
of Namibia. To name other words, or none:

    FROM read_csv('sales.csv', nullstr = ['', 'unknown'])
    FROM read_csv('sales.csv', nullstr = '')

Numbers. The decimal sign is a point. Numbers such as 1,234.5 are text until you name the separator of thousands. If all
points in a column of a file with semicolons may separate thousands, a note says so; if another column of that file has
decimal commas, they are read as separators of thousands, and a note says so too:

    FROM read_csv('sales.csv', thousands = ',')
    FROM read_csv('umsatz.csv', decimal_separator = ',', thousands = '.')

Dates. The cells of a column decide the order of day, month and year; where two orders fit, the day comes first, and a
note names the other. Dates of several forms, or whose years have two digits in some cells and four in others, are text
until a query converts them. Write %y before %Y: %Y reads 25 as the year 25, and %y reads it as 2025:

    select coalesce(try_strptime(day, ['%Y-%m-%d', '%d.%m.%y', '%d.%m.%Y'])) as day FROM 'sales.csv'

The layout of a text file is detected. A first line with dates or numbers like those of the lines below it is a row; if
it may be one, a note says so. Years in equal steps are the header. To set the layout yourself:

    FROM read_csv('sales.csv', delim = ',', quote = '"', header = true)
    FROM read_csv('report.csv', skip = 2, delim = ';', decimal_separator = ',')
    FROM read_csv('sales.csv', comment = '#')
    FROM read_csv('sales.csv', ignore_errors = true)
    FROM read_csv('notes.txt', delim = '|')

Encodings. UTF-8 and UTF-16 are detected. Name any other encoding as Python does:

    FROM read_csv('japan.csv', encoding = 'shift_jis')
    FROM read_csv('western.csv', encoding = 'cp1252')

A file that changes while it is read is read once more; if it changes again, that is an error. Of a log, which only
becomes longer, the lines that are whole are read. A file that another one replaces (os.replace) is whole each time. A
program that pauses for more than 20 ms while it writes cannot be told from one that has finished.

Workbooks. The first sheet is read, and its first row is the header; a note names the other sheets. Choose a sheet by
its name or its number. A range may omit letters or numbers. header is the number of a row, or false:

    FROM read_xlsx('book.xlsx', sheet = 'Managers')
    FROM read_xlsx('book.xlsx', sheet = 2, range = 'A2:B9', header = false)

A formula has the value that the workbook stores for it. A file with a password cannot be read.
"""
