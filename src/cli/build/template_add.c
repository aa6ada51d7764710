/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/build/template_add.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/dir.h"
#include "base/fd.h"
#include "cli/service.h"
#include "cli/share.h"
#include "cli/things.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { ALIASES_MAX = 8, RECIPE_MAX = 16384, RECIPES_MAX = 64 };

struct recipe {
    const char *name, *directory, *version, *summary;
    const char *aliases[ALIASES_MAX];
    size_t n_aliases;
};

static char *recipe_home(struct arena *a)
{
    return share_find(a, "COVE_TEMPLATES", "templates");
}

/* False: there is no such recipe. */
static bool recipe_read(struct arena *a, const char *home, const char *name, struct recipe *ret_recipe)
{
    AUTO_BUF struct buf b = BUF_INIT(RECIPE_MAX);
    struct recipe r = {.name = arena_printf(a, "%s", name), .directory = arena_printf(a, "%s/%s", home, name)};
    AUTO_CLOSE int fd = open(arena_printf(a, "%s/recipe", r.directory), O_RDONLY | O_CLOEXEC);
    struct str rest, line, key;
    ssize_t n;
    char *to;
    if (!*name || strchr(name, '/') || fd < 0 || !(to = buf_reserve(&b, RECIPE_MAX - 1)) ||
        (n = read(fd, to, RECIPE_MAX - 1)) < 0)
        return false;
    buf_commit(&b, (size_t)n);
    for (rest = buf_str(&b); str_split(&rest, '\n', &line);) {
        struct str value = line;
        if (!str_split(&value, ':', &key))
            continue;
        const char *text = arena_strndup(a, str_trim(value).p, str_trim(value).n);
        if (str_eqc(key, "version"))
            r.version = text;
        else if (str_eqc(key, "summary"))
            r.summary = text;
        else if (str_eqc(key, "alias") && r.n_aliases < ALIASES_MAX)
            r.aliases[r.n_aliases++] = text;
    }
    *ret_recipe = r;
    return r.version && r.summary;
}

/* The version that is here, as a tag of the template; NULL: none. */
static const char *recipe_version_here(const json_t *all, const char *name)
{
    const char *found = NULL;
    JSON_FOREACH (one, json_object_get(all, "templates")) {
        const char *its = json_string_value(json_object_get(one, "name"));
        if (!its || strcmp(its, name) != 0)
            continue;
        const char *build = NULL;
        JSON_FOREACH (tag, json_object_get(one, "tags"))
            if (strcmp(json_string_value(json_object_get(tag, "tag")), "default") == 0)
                build = json_string_value(json_object_get(tag, "build"));
        JSON_FOREACH (tag, json_object_get(one, "tags")) {
            const char *text = json_string_value(json_object_get(tag, "tag")),
                       *of = json_string_value(json_object_get(tag, "build"));
            if (text[0] == 'v' && build && of && strcmp(build, of) == 0)
                found = text + 1;
        }
    }
    return found;
}

static json_t *recipe_templates(struct context *ctx)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    json_t *answer = NULL;
    return s && service_call(s, "GET", "/cove/v1/templates", NULL, NULL, &answer) == 0 ? answer : NULL;
}

static int recipe_compare(const void *a, const void *b)
{
    return strcmp(((const struct recipe *)a)->name, ((const struct recipe *)b)->name);
}

int template_add_list(struct context *ctx)
{
    static const struct things_column columns[] = {{"NAME", "name", NULL},
                                                   {"VERSION", "version", NULL},
                                                   {"HERE", "here", NULL},
                                                   {"ALSO", "alias", NULL},
                                                   {"WHAT", "summary", NULL}};
    AUTO_ARENA struct arena a = ARENA_INIT;
    const char *home = recipe_home(&a);
    struct recipe all[RECIPES_MAX];
    size_t n = 0;
    AUTO(dir_close) DIR *dir = dir_open(AT_FDCWD, home);
    if (!dir) {
        (void)err_set(&ctx->err, ERR_NOT_FOUND, "there are no recipes in %s", home);
        return context_fail(ctx, STATUS_FAILED);
    }
    for (const struct dirent *e; n < RECIPES_MAX && (e = dir_next(dir));)
        n += e->d_name[0] != '.' && recipe_read(&a, home, e->d_name, &all[n]);
    qsort(all, n, sizeof(*all), recipe_compare);
    AUTO_JSON json_t *templates = recipe_templates(ctx);
    if (!templates)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_JSON json_t *rows = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(rows,
                                    json_pack("{s:s,s:s,s:s?,s:s?,s:s}", "name", all[i].name, "version", all[i].version,
                                              "here", recipe_version_here(templates, all[i].name), "alias",
                                              all[i].n_aliases ? all[i].aliases[0] : NULL, "summary", all[i].summary));
    return things_table(ctx, rows, columns, ARRAY_SIZE(columns));
}

int template_add_run(struct context *ctx, const char *name, const struct template_build_options *options)
{
    AUTO_ARENA struct arena a = ARENA_INIT;
    struct template_build_options o = *options;
    struct recipe r;
    if (!recipe_read(&a, recipe_home(&a), name, &r)) {
        (void)err_set(&ctx->err, ERR_NOT_FOUND, "there is no recipe \"%.64s\"", name);
        context_hint(ctx, "'cove template add --list' shows those that there are");
        return context_fail(ctx, STATUS_FAILED);
    }
    AUTO_JSON json_t *templates = recipe_templates(ctx);
    if (!templates)
        return context_fail(ctx, STATUS_FAILED);
    o.context = r.directory;
    o.tags[o.n_tags++] = "default";
    o.tags[o.n_tags++] = arena_printf(&a, "v%s", r.version);
    /* Under its other names all steps are in the cache. */
    for (size_t i = 0; i <= r.n_aliases; i++) {
        const char *here;
        o.name = i ? r.aliases[i - 1] : r.name;
        here = recipe_version_here(templates, o.name);
        if (here && strcmp(here, r.version) == 0 && !o.no_cache) {
            if (!o.quiet && !ctx->json)
                (void)fprintf(stderr, "%s: version %s is here already\n", o.name, here);
            continue;
        }
        int status = template_build_run(ctx, &o);
        if (status != STATUS_OK)
            return status;
        o.no_cache = false;
    }
    return STATUS_OK;
}
