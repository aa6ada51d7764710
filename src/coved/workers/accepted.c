/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/accepted.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "wire/keeper.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int accepted_copy(const struct accepted *a)
{
    AUTO_BUF struct buf text = BUF_INIT(CONFIG_FILE_MAX);
    AUTO_FREE char *unfinished = mem_printf("%s.new", a->path);
    int r = fd_read_file(AT_FDCWD, a->from, &text);
    if (r < 0 && !(r == -ENOENT && a->may_be_missing))
        return r;
    r = fd_write_file(AT_FDCWD, unfinished, buf_str(&text), 0600);
    if (r == 0 && rename(unfinished, a->path) < 0)
        r = -errno;
    if (r < 0)
        (void)unlink(unfinished);
    return r;
}

int accepted_open(const char *run_dir, struct accepted *ret_accepted, struct err *err)
{
    struct accepted a = {.path = mem_printf("%s/" KEEPER_CONFIG, run_dir),
                         .before = mem_printf("%s/" KEEPER_CONFIG_BEFORE, run_dir)};
    a.from = mem_strdup(config_path(&a.may_be_missing));
    (void)unlink(a.before);
    int r = accepted_copy(&a);
    if (r == 0 && setenv("COVE_CONFIG", a.path, 1) < 0)
        r = -errno;
    if (r < 0)
        return err_errno(err, r, "copy the configuration %s to %s", a.from, a.path);
    *ret_accepted = a;
    return 0;
}

void accepted_say_from(const struct accepted *a)
{
    if ((a->may_be_missing ? unsetenv("COVE_CONFIG") : setenv("COVE_CONFIG", a->from, 1)) < 0)
        _exit(127);
}

/* What is on trial already has no say in what comes back. */
int accepted_take(struct accepted *a)
{
    bool is_first = access(a->before, F_OK) < 0;
    if (is_first && link(a->path, a->before) < 0)
        return -errno;
    int r = accepted_copy(a);
    if (r < 0 && is_first)
        (void)unlink(a->before);
    return r;
}

void accepted_works(const struct accepted *a)
{
    (void)unlink(a->before);
}

void accepted_take_back(const struct accepted *a)
{
    if (rename(a->before, a->path) == 0)
        log_error("the previous configuration is in force again: coved can't run with the one in %s", a->from);
}
