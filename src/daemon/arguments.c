/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/arguments.h"
#include "base/fd.h"

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

int arguments_parse(int argc, char **argv, const struct option *known,
                    int (*apply)(void *options, int id, const char *argument), void *options, struct err *err)
{
    opterr = 0;
    optind = 1;
    for (;;) {
        int index = 0;
        int id = getopt_long(argc, argv, "", known, &index);
        if (id < 0)
            break;
        if (id == '?')
            return err_set(err, ERR_INVALID_ARGUMENT, "unknown option or no value: %s", argv[optind - 1]);
        int r = apply(options, id, optarg);
        if (r < 0)
            return err_errno(err, r, "--%s %.64s", known[index].name, optarg);
    }
    if (optind != argc)
        return err_set(err, ERR_INVALID_ARGUMENT, "unknown option: %.64s", argv[optind]);
    return 0;
}
