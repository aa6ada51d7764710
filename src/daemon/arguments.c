/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/arguments.h"
#include "base/fd.h"

#include <getopt.h>

int argument_number(struct str text, uint64_t most, uint64_t *ret_value)
{
    uint64_t value;
    int r = str_to_u64(text, &value);
    if (r < 0)
        return r;
    if (value > most)
        return -ERANGE;
    *ret_value = value;
    return 0;
}

int argument_fd(struct str text, int *ret_fd)
{
    uint64_t fd = 0;
    int r = argument_number(text, 1 << 20, &fd);
    if (r == 0)
        r = fd_cloexec((int)fd, true);
    if (r == 0)
        *ret_fd = (int)fd;
    return r;
}

static int argument_take(const struct argument *a, void *options, const char *argument)
{
    void *member = (char *)options + a->at;
    uint64_t number = 0;
    int r;
    switch (a->kind) {
    case ARGUMENT_FD:
        return argument_fd(str_of(argument), member);
    case ARGUMENT_U32:
        r = argument_number(str_of(argument), a->most ? a->most : UINT32_MAX, &number);
        if (r == 0)
            *(uint32_t *)member = (uint32_t)number;
        return r;
    case ARGUMENT_U64:
        return argument_number(str_of(argument), UINT64_MAX, member);
    case ARGUMENT_FLAG:
        *(bool *)member = true;
        return 0;
    case ARGUMENT_TEXT:
        *(const char **)member = argument;
        return *argument || !a->is_never_empty ? 0 : -EINVAL;
    case ARGUMENT_TAKEN:
        return a->take(options, argument);
    }
    return -EINVAL;
}

int arguments_parse(int argc, char **argv, const struct argument *known, void *options, struct err *err)
{
    struct option all[ARGUMENTS_MAX + 1] = {0};
    for (int i = 0; known[i].name; i++) {
        assert(i < ARGUMENTS_MAX);
        all[i] = (struct option){.name = known[i].name, .has_arg = known[i].kind != ARGUMENT_FLAG};
    }
    opterr = 0;
    optind = 1;
    for (;;) {
        int index = 0;
        int id = getopt_long(argc, argv, "", all, &index);
        if (id < 0)
            break;
        if (id == '?')
            return err_set(err, ERR_INVALID_ARGUMENT, "unknown option or no value: %s", argv[optind - 1]);
        int r = argument_take(&known[index], options, optarg);
        if (r < 0)
            return err_errno(err, r, "--%s %.64s", known[index].name, optarg);
    }
    if (optind != argc)
        return err_set(err, ERR_INVALID_ARGUMENT, "unknown option: %.64s", argv[optind]);
    return 0;
}
