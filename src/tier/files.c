/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/files.h"
#include "base/log.h"
#include "base/mem.h"
#include "tier/tier.h"

#include <unistd.h>

enum { FILES_IMAGE_TEXT = 128 };

int files_plan(const struct tier_host *host, const char *layer, const char *kept, struct files_plan *ret_plan,
               struct err *err)
{
    AUTO_FREE struct pool_chain *chain = mem_new(struct pool_chain);
    int r = kept ? pool_kept_chain(host->pool, kept, chain) : pool_chain_read(host->pool, layer, chain);
    if (r == -ENOENT && kept)
        return err_set(err, ERR_NOT_FOUND, "the files of sandbox %s are not in the storage pool", kept);
    if (r == -ENOENT)
        return err_set(err, ERR_NOT_FOUND, "layer %s, or one below it, is not in the storage pool", layer);
    if (r < 0)
        return err_errno(err, r, "read layers of %s in the storage pool", kept ? kept : layer);
    bool cut = !kept && pool_chain_is_long(host->pool, chain);
    *ret_plan =
        (struct files_plan){.from_layer = cut, .from_kept = kept, .stands_on = chain->n > cut ? chain->names[cut] : ""};
    ret_plan->chain = TAKE_PTR(chain);
    return 0;
}

void files_plan_fini(struct files_plan *plan)
{
    mem_free(TAKE_PTR(plan->chain));
}

/* What lies below a box. */
static int files_below(const struct tier_host *host, const char *stands_on, struct pool_chain *ret_below)
{
    ret_below->n = 0;
    return stands_on[0] ? pool_chain_read(host->pool, stands_on, ret_below) : 0;
}

int files_snapshot(const struct tier_host *host, const char *box, const char *stands_on, const char *layer)
{
    struct pool_chain below;
    int r = files_below(host, stands_on, &below);
    return r ? r : pool_layer_of_box(host->pool, box, layer, &below);
}

int files_layer_below(const struct tier_host *host, const char *layer, char ret_below[static POOL_LAYER_MAX])
{
    struct pool_chain chain;
    int r = pool_chain_read(host->pool, layer, &chain);
    if (r == 0 && chain.n > 1)
        (void)snprintf(ret_below, POOL_LAYER_MAX, "%s", chain.names[1]);
    return r == 0 && chain.n < 2 ? -ENOENT : r;
}

int files_layer_drop(const struct tier_host *host, const char *layer)
{
    char image[FILES_IMAGE_TEXT], half[FILES_IMAGE_TEXT], boots[FILES_IMAGE_TEXT], trash[FILES_IMAGE_TEXT], token[13];
    id_token(token, sizeof(token) - 1);
    (void)snprintf(image, sizeof(image), FILES_IMAGES "/%s", layer);
    (void)snprintf(half, sizeof(half), FILES_IMAGES "/.%s", layer); /* of a machine that ended over it */
    (void)snprintf(boots, sizeof(boots), FILES_BOOTS "/%s", layer);
    (void)snprintf(trash, sizeof(trash), "trash/%s.%s", layer, token);
    (void)unlinkat(pool_fd(host->pool), image, 0); /* mostly there is none, as of the next two */
    (void)unlinkat(pool_fd(host->pool), half, 0);
    (void)renameat(pool_fd(host->pool), boots, pool_fd(host->pool), trash);
    return pool_layer_drop(host->pool, layer);
}

int files_keep(const struct tier_host *host, const char *box, const char *sandbox, const char *stands_on)
{
    struct pool_chain below;
    int r = files_below(host, stands_on, &below);
    int ignored UNUSED = pool_box_limit(host->pool, box, 0); /* what is noted beside its files is ours */
    return r ? r : pool_keep(host->pool, box, sandbox, &below);
}

int files_copy(const struct tier_host *host, const char *box, const char *sandbox, const char *stands_on)
{
    struct pool_chain below;
    int r = files_below(host, stands_on, &below);
    return r ? r : pool_keep_copy(host->pool, box, sandbox, &below);
}

int files_kept_below(const struct tier_host *host, const char *sandbox, char ret_stands_on[static POOL_LAYER_MAX])
{
    struct pool_chain below = {.n = 0};
    int r = pool_kept_chain(host->pool, sandbox, &below);
    if (r == 0)
        (void)snprintf(ret_stands_on, POOL_LAYER_MAX, "%s", below.n ? below.names[0] : "");
    return r;
}

struct files_walk {
    const struct tier_host *host;
    void (*fn)(void *ctx, const char *sandbox, const char *stands_on);
    void *ctx;
};

static void files_walk_kept(void *ctx, const char *sandbox)
{
    const struct files_walk *w = ctx;
    char stands_on[POOL_LAYER_MAX] = "";
    if (!id_is_sandbox(str_of(sandbox)))
        return;
    int r = files_kept_below(w->host, sandbox, stands_on);
    if (r < 0)
        log_error("read the layers of sandbox %s: %s", sandbox, strerror(-r));
    w->fn(w->ctx, sandbox, stands_on);
}

int files_kept_each(const struct tier_host *host, void (*fn)(void *ctx, const char *sandbox, const char *stands_on),
                    void *ctx)
{
    struct files_walk w = {host, fn, ctx};
    return pool_kept_each(host->pool, files_walk_kept, &w);
}
