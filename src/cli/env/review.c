/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/review.h"
#include "base/char.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"

#include <fnmatch.h>
#include <strings.h>

enum { RAW_MAX = 64 << 20, REVIEW_PATCH_MAX = 256 << 20, LINKS_MAX = 4096, LINK_TEXT_MAX = 4096 };
enum { REVIEW_CPU_SECONDS = 60 };

/* ":100644 120000 <object> <object> M\0path\0" */
struct review_change {
    struct str old_mode, mode, object, path;
};

static bool review_next(struct str *rest, struct review_change *ret_change)
{
    struct str head, word;
    while (rest->p && rest->n && *rest->p == '\n') /* between commits */
        *rest = str_sub(*rest, 1);
    if (!rest->p || !rest->n || *rest->p != ':' || !str_split(rest, '\0', &head) ||
        !str_split(rest, '\0', &ret_change->path))
        return false;
    head = str_sub(head, 1);
    return str_split(&head, ' ', &ret_change->old_mode) && str_split(&head, ' ', &ret_change->mode) &&
           str_split(&head, ' ', &word) && str_split(&head, ' ', &ret_change->object);
}

static bool review_is_git(struct str part)
{
    return (part.n == 4 && strncasecmp(part.p, ".git", 4) == 0) ||
           (part.n == 5 && strncasecmp(part.p, "git~1", 5) == 0);
}

/*
 * Where a link leads, by its text alone. What it passes may be a link itself, which is judged on its own, and behind
 * which ".." is above the place that one leads to: so it may go up only at first.
 */
static const char *review_link(struct str path, struct str target)
{
    struct str part;
    bool has_passed = false;
    int depth = 0;
    for (size_t i = 0; i < path.n; i++)
        depth += path.p[i] == '/';
    if (!target.n || *target.p == '/' || memchr(target.p, '\0', target.n))
        return "a link to an absolute path";
    while (str_split(&target, '/', &part)) {
        if (review_is_git(part))
            return "a link into .git";
        const bool is_up = str_eqc(part, "..");
        has_passed |= part.n && !is_up && !str_eqc(part, ".");
        if (is_up && (has_passed || --depth < 0))
            return "a link that leads out of the repository";
    }
    return NULL;
}

/* All at once: "<object> blob <size>\n<text>\n" each. */
static int review_links(struct repo *r, struct str raw)
{
    AUTO_BUF struct buf wanted = BUF_INIT(RAW_MAX), texts = BUF_INIT(RAW_MAX);
    struct review_change c;
    size_t n = 0;
    for (struct str rest = raw; review_next(&rest, &c);)
        if (str_eqc(c.mode, "120000") && n++ < LINKS_MAX)
            buf_printf(&wanted, "%.*s\n", STR_ARG(c.object));
    if (n == 0)
        return 0;
    if (n > LINKS_MAX)
        return repo_refuse(r, STR_NULL, "more than 4096 links");
    AUTO_CLOSE int list = buf_error(&wanted) ? -1 : child_input(buf_str(&wanted));
    if (list < 0)
        return err_set(&r->ctx->err, ERR_INTERNAL, "the links can't be listed");
    const char *const args[] = {"cat-file", "--batch", NULL};
    if (repo_git(r, REPO_OURS, &(struct repo_io){list, -1, &texts}, args) < 0)
        return -1;
    struct str text = buf_str(&texts), head, word;
    for (struct str rest = raw; review_next(&rest, &c);) {
        uint64_t size;
        if (!str_eqc(c.mode, "120000"))
            continue;
        if (!str_split(&text, '\n', &head) || !str_split(&head, ' ', &word) || !str_split(&head, ' ', &word) ||
            !str_eqc(word, "blob") || str_to_u64(head, &size) < 0 || size > LINK_TEXT_MAX || size + 1 > text.n)
            return repo_refuse(r, c.path, "a link that can't be read");
        const char *why = review_link(c.path, str_n(text.p, size));
        if (why)
            return repo_refuse(r, c.path, why);
        text = str_sub(text, size + 1);
    }
    return 0;
}

int review_check(struct repo *r, const char *from, const char *head, const char *work)
{
    AUTO_BUF struct buf text = BUF_INIT(RAW_MAX);
    AUTO_FREE char *except = mem_printf("^%s", from);
    r->cpu_seconds = REVIEW_CPU_SECONDS; /* a few trees may stand for more directories than anybody can look at */
    int failed = REPO_ASK(r, REPO_OURS, &text, "log", "-m", "--root", "--raw", "-z", "--no-renames", "--no-abbrev",
                          "--format=", head, work, except, "--");
    r->cpu_seconds = 0;
    if (failed < 0 && r->ctx->err.code == ERR_RESOURCE_EXHAUSTED) {
        AUTO_FREE char *why = mem_strdup(r->ctx->err.msg);
        return repo_refuse(r, STR_NULL, why);
    }
    if (failed < 0)
        return -1;
    struct str rest = buf_str(&text);
    struct review_change c;
    while (review_next(&rest, &c)) {
        struct str parts = c.path, part;
        if (str_eqc(c.mode, "160000"))
            return repo_refuse(r, c.path, "a repository within the repository");
        if (!str_eqc(c.mode, "000000") && c.path.n == 11 && strncasecmp(c.path.p, ".gitmodules", 11) == 0)
            return repo_refuse(r, c.path, "submodules can only be changed here, not inside");
        while (str_split(&parts, '/', &part))
            if (!part.n || review_is_git(part) || str_eqc(part, "..") || str_eqc(part, "."))
                return repo_refuse(r, c.path, "no path of a repository");
    }
    if (rest.n)
        return repo_refuse(r, STR_NULL, "a commit that can't be read");
    return review_links(r, buf_str(&text));
}

/* ---- what deserves a look ---- */

/* Without a slash: a file of this name anywhere. */
static const struct {
    const char *pattern, *why;
} review_places[] = {
    {".github/*", "CI"},
    {".gitlab-ci.yml", "CI"},
    {".circleci/*", "CI"},
    {"Jenkinsfile", "CI"},
    {"azure-pipelines.yml", "CI"},
    {".cove/*", "Cove's own settings"},
    {".husky/*", "a Git hook"},
    {".githooks/*", "a Git hook"},
    {".pre-commit-config.yaml", "a Git hook"},
    {"lefthook.*", "a Git hook"},
    {".lefthook*", "a Git hook"},
    {".gitattributes", "chooses filters of Git"},
    {".vscode/*", "an editor runs it"},
    {".idea/*", "an editor runs it"},
    {".devcontainer/*", "an editor runs it"},
    {".devcontainer.json", "an editor runs it"},
    {".zed/*", "an editor runs it"},
    {".fleet/*", "an editor runs it"},
    {"*.code-workspace", "an editor runs it"},
    {".dir-locals.el", "an editor runs it"},
    {".exrc", "an editor runs it"},
    {".nvim*", "an editor runs it"},
    {".vimrc", "an editor runs it"},
    {".envrc", "the shell runs it"},
    {"mise*.toml", "the shell runs it"},
    {".mise*", "the shell runs it"},
    {"CLAUDE.md", "agents obey it"},
    {"AGENTS.md", "agents obey it"},
    {"GEMINI.md", "agents obey it"},
    {".mcp.json", "agents run it"},
    {".claude/*", "agents run it"},
    {".cursor/*", "agents run it"},
    {".codex/*", "agents run it"},
    {".gemini/*", "agents run it"},
    {".windsurf/*", "agents run it"},
    {"opencode.json*", "agents run it"},
    {".cursorrules", "agents obey it"},
    {".windsurfrules", "agents obey it"},
    {".clinerules*", "agents obey it"},
    {"Makefile*", "a build runs it"},
    {"GNUmakefile", "a build runs it"},
    {"*.mk", "a build runs it"},
    {".justfile", "a build runs it"},
    {"justfile", "a build runs it"},
    {"Taskfile.*", "a build runs it"},
    {"Rakefile", "a build runs it"},
    {"*.cmake", "a build runs it"},
    {".cargo/*", "a build runs it"},
    {"Cargo.toml", "a build runs it"},
    {"BUILD", "a build runs it"},
    {"*.bazel*", "a build runs it"},
    {"WORKSPACE", "a build runs it"},
    {"build.zig", "a build runs it"},
    {"build.sbt", "a build runs it"},
    {"*.csproj", "a build runs it"},
    {"Directory.Build.*", "a build runs it"},
    {"*.nix", "a build runs it"},
    {"CMakeLists.txt", "a build runs it"},
    {"meson.build", "a build runs it"},
    {"build.rs", "a build runs it"},
    {"*.gradle*", "a build runs it"},
    {"pom.xml", "a build runs it"},
    {"setup.py", "an installation runs it"},
    {"setup.cfg", "an installation runs it"},
    {"pyproject.toml", "an installation runs it"},
    {"*.gemspec", "an installation runs it"},
    {"Gemfile", "an installation runs it"},
    {"composer.json", "an installation runs it"},
    {".pnpmfile.*", "an installation runs it"},
    {".yarn/*", "an installation runs it"},
    {".yarnrc*", "an installation runs it"},
    {"package.json", "an installation runs it"},
    {".npmrc", "where packages come from"},
    {"conftest.py", "the tests run it"},
    {"tox.ini", "the tests run it"},
    {"noxfile.py", "the tests run it"},
    {"sitecustomize.py", "each Python runs it"},
    {"usercustomize.py", "each Python runs it"},
    {"*.pth", "each Python runs it"},
    {"*.config.js", "a build runs it"},
    {"*.config.?js", "a build runs it"},
    {"*.config.ts", "a build runs it"},
    {".eslintrc.?js", "a build runs it"},
    {".eslintrc.js", "a build runs it"},
    {"Dockerfile*", "a build runs it"},
    {"Containerfile*", "a build runs it"},
    {"compose*.y*ml", "what it starts may reach this machine"},
    {"docker-compose*.y*ml", "what it starts may reach this machine"},
    {"Vagrantfile", "what it starts may reach this machine"},
    {"*.lock", "which packages are used"},
    {"package-lock.json", "which packages are used"},
    {"pnpm-lock.yaml", "which packages are used"},
    {"go.sum", "which packages are used"},
};

static const char *review_place(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < ARRAY_SIZE(review_places); i++) {
        const char *pattern = review_places[i].pattern;
        if (fnmatch(pattern, strchr(pattern, '/') ? path : name, FNM_CASEFOLD) == 0)
            return review_places[i].why;
    }
    return NULL;
}

static int review_say(FILE *out, struct str path, const char *why)
{
    if (out == stderr) /* a proposal has a heading for them */
        (void)fputs("  look first: ", out);
    terminal_print(out, true, path);
    (void)fprintf(out, " (%s)\n", why);
    return 1;
}

static bool review_hides(struct str line)
{
    while (line.n) {
        if ((unsigned char)*line.p < 0x80) { /* most are, and there may be many */
            line.p++;
            line.n--;
        } else if (char_is_hidden(char_take(&line))) {
            return true;
        }
    }
    return false;
}

/* "a/NAME b/NAME", as there are no renames. What git quotes stays as it is. */
static struct str review_name(struct str pair)
{
    const struct str name = str_n(pair.p + 2, pair.n > 5 ? (pair.n - 5) / 2 : 0);
    return name.n && str_starts(pair, STR("a/")) && str_ends(pair, name) ? name : pair;
}

/* In added lines of one file's patch after the other, and in their names. */
static int review_text(struct str patch, FILE *out)
{
    struct str line, path = STR("?");
    bool said = false;
    int n = 0;
    while (str_split(&patch, '\n', &line)) {
        if (str_starts(line, STR("diff --git "))) {
            path = review_name(str_sub(line, 11));
            said = false;
        } else if (!said && (str_starts(line, STR("Binary files ")) || str_eqc(line, "GIT binary patch"))) {
            n += review_say(out, path, "binary");
            said = true;
        } else if (!said && line.n && *line.p == '+' && review_hides(line)) {
            n += review_say(out, path, "characters that hide or reorder text");
            said = true;
        }
    }
    return n;
}

/* One git for both: the records, as text what is asked for, NUL, and the patch. */
int review_changes(struct repo *r, const char *from, const char *to, enum review_shown shown, FILE *risks)
{
    const char *const form = shown == REVIEW_PATCH ? "--binary" : shown == REVIEW_STAT ? "--stat" : "-U0";
    AUTO_BUF struct buf text = BUF_INIT(REVIEW_PATCH_MAX);
    struct review_change c;
    struct str rest, stat = STR_NULL;
    int n = 0;
    if (REPO_ASK(r, REPO_OURS, &text, "diff", "--raw", "--patch", form, "-z", "--no-renames", "--no-abbrev",
                 "--no-ext-diff", "--no-textconv", from, to, "--") < 0) {
        if (r->ctx->err.code == ERR_RESOURCE_EXHAUSTED && shown == REVIEW_PATCH)
            context_hint(r->ctx, "--stat shows which files changed");
        return -1;
    }
    rest = buf_str(&text);
    while (review_next(&rest, &c))
        ;
    (void)str_split(&rest, '\0', &stat);
    if (shown != REVIEW_NOTHING) {
        print_lines(shown == REVIEW_STAT ? stat : rest);
        (void)fflush(stdout);
    }
    for (struct str records = buf_str(&text); review_next(&records, &c);) {
        AUTO_FREE char *path = mem_strndup(c.path.p, c.path.n);
        const char *why = review_place(path);
        if (why)
            n += review_say(risks, c.path, why);
        if (str_eqc(c.mode, "120000"))
            n += review_say(risks, c.path, "a link");
        if (str_eqc(c.mode, "100755") && !str_eqc(c.old_mode, "100755"))
            n += review_say(risks, c.path, "became executable");
    }
    return n + review_text(rest, risks);
}
