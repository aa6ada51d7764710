/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder's unit tests are one program, which runs the one that its first argument names: "pool/pool" or "pool" for
 * src/kernel/pool/pool_test.c. The compiler includes this before each of them. It makes main(), of which a program has
 * one, a function of the file's own, known by the file's name.
 */
#pragma once

struct test_program {
    const char *file;
    int (*run)(void);
    struct test_program *next;
};

void test_program_add(struct test_program *program);

#define main(none)                                                                                                     \
    main(int, char **);                                                                                                \
    static int test_program_run(none);                                                                                 \
    __attribute__((constructor)) static void test_program_known(void)                                                  \
    {                                                                                                                  \
        static struct test_program program = {__FILE__, test_program_run, 0};                                          \
        test_program_add(&program);                                                                                    \
    }                                                                                                                  \
    static int test_program_run(none)
