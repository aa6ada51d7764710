/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/forks.h"
#include "base/mem.h"

struct forks {
    struct call *call; /* held */
    size_t count;
    json_t *all; /* owned */
    json_t *(*one)(struct call *c, const struct sandbox *fork, const struct err *err);
    void (*answer)(struct call *c, json_t *all);
};

struct forks *forks_new(struct call *c, size_t count,
                        json_t *(*one)(struct call *c, const struct sandbox *fork, const struct err *err),
                        void (*answer)(struct call *c, json_t *all))
{
    struct forks *f = mem_new(struct forks);
    *f = (struct forks){call_hold(c), count, json_array(), one, answer};
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(f->all, json_null());
    return f;
}

static void forks_free(struct forks *f)
{
    json_decref(f->all);
    mem_free(f);
}

void forks_begun(struct forks *f, int r)
{
    if (r >= 0)
        return;
    call_drop(f->call, &f->call->err);
    forks_free(f);
}

void forks_on(void *forks, size_t i, struct sandbox *fork, const struct err *err)
{
    struct forks *f = forks;
    if (i < f->count) {
        if (f->call->req && !f->call->answered)
            (void)json_array_set_new(f->all, i, f->one(f->call, fork, err));
        return;
    }
    struct call *c = call_back(f->call, NULL);
    if (c)
        f->answer(c, json_incref(f->all));
    forks_free(f);
}
