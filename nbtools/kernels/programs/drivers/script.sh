# Run one shell script, with the shell started ahead of time. Arguments: the shell, and its options.
# Three lines arrive on descriptor 8: a file that makes the script's world, the file of the script, and how to run it:
# "short" when it fits on a command line (messages then say "bash: line 3: …"), "here" when a variable is too long for
# the environment of another program.
IFS= read -r begin <&8 || exit 0
IFS= read -r file <&8 || exit 0
IFS= read -r size <&8 || exit 0
. "$begin"
exec 8<&- 9>&-
case "$size" in
short)
  if [ -n "$BASH_VERSION" ]; then code=$(<"$file"); else code=$(cat "$file"); fi
  exec "$@" -c "$code" "${1##*/}"
  ;;
here) . "$file" ;;
*) exec "$@" "$file" ;;
esac
