/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

static struct test_program *programs;

void test_program_add(struct test_program *program)
{
    program->next = programs;
    programs = program;
}

#undef main
int main(int argc, char **argv)
{
    char end[256];
    int n = snprintf(end, sizeof(end), "/%s_test.c", argc == 2 ? argv[1] : "");
    for (const struct test_program *p = programs; p; p = p->next) {
        size_t length = strlen(p->file);
        if (length >= (size_t)n && strcmp(p->file + length - (size_t)n, end) == 0)
            return p->run();
    }
    (void)fprintf(stderr, "%s NAME: one of these tests\n", argv[0]);
    for (const struct test_program *p = programs; p; p = p->next)
        (void)fprintf(stderr, "  %s\n", p->file);
    return 2;
}
