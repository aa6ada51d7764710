/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines, words behind each line's end: what comes out is bounded and points at something. */
#include "guard/shell.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct shell_line *line = arena_alloc(&arena, sizeof(*line));
    struct str argv[16], rest = str_n(data, size);
    size_t n = 0, sum = 0;
    while (n < ARRAY_SIZE(argv) && str_split(&rest, '\0', &argv[n]))
        n++;
    shell_read(line, &arena, argv, n);
    if (line->n > SHELL_COMMANDS_MAX || line->n_groups > SHELL_COMMANDS_MAX)
        abort();
    for (size_t i = 0; i < line->n; i++) {
        const struct shell_command *c = &line->all[i];
        if (!c->n_words || !c->words[0].n || c->group > line->n_groups)
            abort();
        for (size_t k = 0; k < c->n_words; k++)
            sum += c->words[k].n;
        for (size_t k = 0; k < c->n_writes; k++)
            sum += c->writes[k].n;
        (void)shell_feeds(line, c, &line->all[0]);
    }
    return sum > (size_t)SHELL_COMMANDS_MAX * SHELL_WORDS_ALL * SHELL_TEXT_MAX;
}
