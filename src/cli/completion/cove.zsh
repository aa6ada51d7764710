#compdef cove
# SPDX-License-Identifier: Apache-2.0
# zsh completion for cove: source <(cove completion zsh)
# Only what can be an id is offered, whatever a service says.
_cove_ids() { local -a ids; ids=(${${(f)"$(cove ls -q 2>/dev/null)"}:#*[^a-z0-9]*}); compadd "$@" -a ids }
_cove_ids_or() { compadd -- $@; _cove_ids }
_cove_files() { _files; _cove_ids -S : }
_cove_topics() { _describe command verbs -- '(exit-codes:"what an exit code means")' }
_cove() {
    local -a verbs
    verbs=(
        '@verbs'
    )
    if (( CURRENT == 2 )); then
        _describe command verbs
        return
    fi
    local cmd=$words[2]
    shift words
    (( CURRENT-- ))
    case $cmd in
    @commands) ;;
    esac
}
if [ "$funcstack[1]" = _cove ]; then _cove "$@"; else compdef _cove cove; fi
