#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bash completion for cove: source <(cove completion bash)
# compgen -W expands what it is given: only what can be an id gets there, whatever a service says.
_cove_ids() {
    local id
    while IFS= read -r id; do
        [[ ! $id =~ ^[a-z0-9]+$ ]] || printf '%s\n' "$id"
    done < <(cove ls -q 2>/dev/null)
}
_cove() {
    local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} flags='' valued='' operands='' words='' others='' ends='' word i
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W '@names' -- "$cur")
        return
    fi
    local commands='@names'
    case $cmd in
    @commands) ;;
    esac
    for ((i = 2; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $valued == *" $word "* ]]; then
            i=$((i + 1))
            [[ ${COMP_WORDS[i]} != = ]] || i=$((i + 1))
            [ "$i" -lt "$COMP_CWORD" ] || return 0
        elif [[ $word != -* ]]; then
            words='' operands=${others:-$operands}
            [ -z "$ends" ] || flags=''
            break
        fi
    done
    case $cur in
    -*) mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$cur") ;;
    *)
        case $operands in
        id) mapfile -t COMPREPLY < <(compgen -W "$words $(_cove_ids)" -- "$cur") ;;
        command) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
        file)
            mapfile -t COMPREPLY < <(compgen -f -- "$cur"; compgen -S : -W "$(_cove_ids)" -- "$cur")
            [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *: ]] || compopt -o nospace 2>/dev/null
            ;;
        shell) mapfile -t COMPREPLY < <(compgen -W 'bash zsh fish' -- "$cur") ;;
        subcommand) mapfile -t COMPREPLY < <(compgen -W "$commands exit-codes" -- "$cur") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
        esac
        ;;
    esac
}
complete -o default -F _cove cove
