# Run PowerShell code: once, or as a session. Argument: "once" or "session".
# A line on descriptor 8 names a file to run in this very scope; the answer on descriptor 9 is its exit code.
param([string]$mode)
$ErrorActionPreference = 'Continue'
if ($PSStyle) { $PSStyle.OutputRendering = 'PlainText' }
$__requests = [System.IO.StreamReader]::new([System.IO.FileStream]::new(
    [Microsoft.Win32.SafeHandles.SafeFileHandle]::new([IntPtr]8, $true), [System.IO.FileAccess]::Read))
$__answers = [System.IO.StreamWriter]::new([System.IO.FileStream]::new(
    [Microsoft.Win32.SafeHandles.SafeFileHandle]::new([IntPtr]9, $true), [System.IO.FileAccess]::Write))
$__answers.AutoFlush = $true
if ($mode -eq 'session') { $__answers.WriteLine('ready') }
while ($null -ne ($__file = $__requests.ReadLine())) {
    $global:LASTEXITCODE = 0
    $__code = 0
    try {
        . $__file
        if ($global:LASTEXITCODE) { $__code = $global:LASTEXITCODE }
    } catch {
        [Console]::Error.WriteLine(($_ | Out-String).TrimEnd())
        $__code = 1
    }
    if ($mode -ne 'session') { exit $__code }
    $__answers.WriteLine("done $__code")
}
