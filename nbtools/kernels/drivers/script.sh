# Run one shell script, with the shell started ahead of time. Arguments: the shell, and its options.
# Three lines arrive on descriptor 60: a file that makes the script's world, the file of the script, and "short" when it
# fits on a command line: it is handed over there then, because messages say "bash: line 3: …" that way.
IFS= read -r begin <&60 || exit 0
IFS= read -r file <&60 || exit 0
IFS= read -r size <&60 || exit 0
. "$begin"
exec 60<&- 61>&-
if [ "$size" = short ]; then
  if [ -n "$BASH_VERSION" ]; then code=$(<"$file"); else code=$(cat "$file"); fi
  exec "$@" -c "$code" "${1##*/}"
fi
exec "$@" "$file"
