# SPDX-License-Identifier: Apache-2.0
# fish completion for cove: cove completion fish | source
# Only what can be an id is offered, whatever a service says.
function __cove_ids
    cove ls -q 2>/dev/null | string match -r '^[a-z0-9]+$'
end
function __cove_begins
    set -l words (commandline -opc)
    test (count $words) -eq 1
end
# Is this the command, and its first operand what is completed, or one of the others?
function __cove_at -a command place
    set -l words (commandline -opc)
    set -l valued (__cove_valued $command)
    set -l found first
    set -l i 3
    test (count $words) -ge 2; and test "$words[2]" = $command; or return 1
    while test $i -le (count $words)
        if contains -- $words[$i] $valued
            set i (math $i + 1)
        else if not string match -q -- '-*' $words[$i]
            set found other
            break
        end
        set i (math $i + 1)
    end
    test -z "$place"; or test $place = $found
end
function __cove_valued -a command
    switch $command
        case @valued
    end
end
complete -c cove -f
