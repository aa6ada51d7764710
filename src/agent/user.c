/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/user.h"
#include "agent/agent.h"
#include "base/fd.h"
#include "base/mem.h"
#include "wire/proto.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 1024 * 1024, KEEP_BYTES_MAX = 64 * 1024, SETTLED_S = 2 };

/*
 * The two files as they were last read, because each start of a process needs them. A file that was read right after a
 * change could change once more within the resolution of its time stamps and look the same; so what changed less than
 * SETTLED_S ago is not kept.
 */
struct user_kept {
    char *path; /* owned */
    struct stat st;
    struct buf text;
};

static struct user_kept kept[2];

static bool user_is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static bool is_settled(const struct stat *st)
{
    struct timespec now;
    return clock_gettime(CLOCK_REALTIME, &now) == 0 && now.tv_sec - st->st_ctim.tv_sec > SETTLED_S;
}

static struct user_kept *kept_of(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        if (!kept[i].path || strcmp(kept[i].path, path) == 0)
            return &kept[i];
    return NULL;
}

static void user_keep(const char *path, const struct stat *st, const struct buf *b)
{
    struct user_kept *k = kept_of(path);
    if (!k || buf_len(b) > KEEP_BYTES_MAX || !is_settled(st))
        return;
    if (!k->path)
        *k = (struct user_kept){.path = mem_strdup(path), .text = BUF_INIT(KEEP_BYTES_MAX)};
    buf_clear(&k->text);
    (void)buf_append_str(&k->text, buf_str(b));
    k->st = *st;
}

/* Leaves the buffer empty when the file is not what it should be; -errno: the kernel did not give it. */
static int read_accounts(const char *path, struct buf *b)
{
    struct stat st;
    *b = BUF_INIT(FILE_BYTES_MAX);
    if (stat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
    if (!S_ISREG(st.st_mode))
        return 0;
    const struct user_kept *k = kept_of(path);
    if (k && k->path && user_is_same(&k->st, &st))
        return buf_append_str(b, buf_str(&k->text));
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_BYTES_MAX)
        return 0;
    size_t size = (size_t)st.st_size; /* in one read: the files are small */
    char *to = buf_reserve(b, MAX(size, (size_t)1));
    ssize_t n = to ? read(fd, to, size) : 0;
    if (n < 0) /* of memory perhaps: says nothing for the next time */
        return -errno;
    buf_commit(b, (size_t)n);
    if ((size_t)n == size)
        user_keep(path, &st, b);
    return 0;
}

/* Splits the next line "a:b:c" into its fields; false at the end. Fields that are not there are empty. */
static bool next_line(struct str *text, struct str *fields, size_t n_fields)
{
    struct str line;
    if (!str_split(text, '\n', &line))
        return false;
    for (size_t i = 0; i < n_fields; i++)
        if (!str_split(&line, ':', &fields[i]))
            fields[i] = STR("");
    return true;
}

static bool user_number(struct str s, uint32_t *ret_n)
{
    uint64_t v;
    if (str_to_u64(s, &v) < 0 || v >= UINT32_MAX)
        return false;
    *ret_n = (uint32_t)v;
    return true;
}

enum { PASSWD_NAME, PASSWD_UID = 2, PASSWD_GID, PASSWD_HOME = 5, PASSWD_SHELL, PASSWD_FIELDS };
enum { GROUP_NAME, GROUP_GID = 2, GROUP_MEMBERS, GROUP_FIELDS };

static void add_groups(const char *path, struct user *u)
{
    AUTO_BUF struct buf file;
    struct str fields[GROUP_FIELDS], member;
    uint32_t gid;
    int ignored UNUSED = read_accounts(path, &file);
    struct str text = buf_str(&file);
    while (u->n_groups < USER_GROUPS_MAX && next_line(&text, fields, GROUP_FIELDS)) {
        while (str_split(&fields[GROUP_MEMBERS], ',', &member)) {
            if (!str_eqc(member, u->name) || !user_number(fields[GROUP_GID], &gid))
                continue;
            if (gid != u->gid)
                u->groups[u->n_groups++] = gid;
            break;
        }
    }
}

static char *absolute_or(struct str s, const char *otherwise)
{
    if (s.n == 0 || s.p[0] != '/' || s.n >= PATH_TEXT_MAX || str_has_nul(s))
        s = str_of(otherwise);
    return mem_strndup(s.p, s.n);
}

int user_lookup(const struct user_files *files, struct str name, bool want_groups, struct user *ret_user,
                struct failure *f)
{
    AUTO_BUF struct buf file;
    struct str fields[PASSWD_FIELDS];
    uint32_t uid, gid, number = 0, group = 0;
    struct user *u = ret_user;
    *u = (struct user){0};
    if (name.n == 0)
        name = STR(WIRE_DEFAULT_USER);
    struct str rest = name, who;
    (void)str_split(&rest, ':', &who);
    const bool has_group = rest.p, is_number = user_number(who, &number) && (!has_group || user_number(rest, &group));
    if (!is_number)
        who = name;
    int r = read_accounts(files->passwd, &file);
    struct str text = buf_str(&file);
    while (!u->name && next_line(&text, fields, PASSWD_FIELDS)) {
        if (!user_number(fields[PASSWD_UID], &uid) || !user_number(fields[PASSWD_GID], &gid) ||
            !(str_eq(fields[PASSWD_NAME], who) || (is_number && uid == number)))
            continue;
        u->name = mem_strndup(fields[PASSWD_NAME].p, fields[PASSWD_NAME].n);
        u->home = absolute_or(fields[PASSWD_HOME], "/");
        u->shell = absolute_or(fields[PASSWD_SHELL], "/bin/sh");
        u->uid = uid;
        u->gid = gid;
    }
    if (!u->name && str_eqc(name, "root"))
        *u = (struct user){.name = mem_strdup("root"), .home = mem_strdup("/root"), .shell = mem_strdup("/bin/sh")};
    if (!u->name && r < 0)
        return failure_errno(f, ERR_UNAVAILABLE, -r, "read %s", files->passwd);
    if (!u->name && is_number && *files->passwd)
        *u = (struct user){
            .name = mem_strndup(who.p, who.n), .home = mem_strdup("/"), .shell = mem_strdup("/bin/sh"), .uid = number};
    if (!u->name)
        return failure_set(f, ERR_UNAUTHENTICATED, "invalid username: '%.*s'", STR_ARG_MAX(name, 256));
    if (is_number && has_group)
        u->gid = group;
    u->groups[u->n_groups++] = u->gid;
    if (want_groups)
        add_groups(files->group, u);
    return 0;
}

void user_fini(struct user *u)
{
    MEM_FREE(u->name, u->home, u->shell);
    *u = (struct user){0};
}

int user_path(const struct user *u, struct str path, char ret_path[static PATH_TEXT_MAX], struct failure *f)
{
    if (str_has_nul(path))
        return failure_set(f, ERR_INVALID_ARGUMENT, "path contains a NUL byte");
    if (path.n && path.p[0] == '~') {
        if (path.n > 1 && path.p[1] != '/')
            return failure_set(f, ERR_INVALID_ARGUMENT,
                               "failed to expand path '%.*s' for user '%s': cannot expand user-specific home dir",
                               STR_ARG_MAX(path, PATH_TEXT_MAX), u->name);
        path = str_sub(path, MIN(path.n, (size_t)2));
        while (path.n && path.p[0] == '/')
            path = str_sub(path, 1);
    } else if (path.n && path.p[0] == '/') {
        if (path.n >= PATH_TEXT_MAX)
            return failure_set(f, ERR_INVALID_ARGUMENT, "path of %zu bytes: %s", path.n, errno_text(ENAMETOOLONG));
        memcpy(ret_path, path.p, path.n);
        ret_path[path.n] = 0;
        return 0;
    }
    int r = path_join(str_of(u->home), path, ret_path);
    if (r < 0)
        return failure_set(f, ERR_INVALID_ARGUMENT, "path of %zu bytes: %s", path.n, errno_text(-r));
    return 0;
}

void names_init(struct agent_names *n, const struct agent *a)
{
    *n = (struct agent_names){.files = a->config.users,
                              .attributes = a->attributes,
                              .passwd = BUF_INIT(FILE_BYTES_MAX),
                              .group = BUF_INIT(FILE_BYTES_MAX)};
}

void names_fini(struct agent_names *n)
{
    buf_fini(&n->passwd);
    buf_fini(&n->group);
}

/* Field 2 is the number in both files. */
static struct str user_name_of(struct str text, uint32_t id, char digits[static 12])
{
    struct str fields[3];
    uint32_t have;
    while (next_line(&text, fields, ARRAY_SIZE(fields)))
        if (user_number(fields[2], &have) && have == id && fields[0].n && fields[0].n <= 256)
            return fields[0];
    (void)snprintf(digits, 12, "%u", id);
    return str_of(digits);
}

static void user_load(struct agent_names *n)
{
    if (n->loaded)
        return;
    read_accounts(n->files.passwd, &n->passwd);
    read_accounts(n->files.group, &n->group);
    n->loaded = true;
}

struct str names_user(struct agent_names *n, uid_t uid)
{
    user_load(n);
    if (!n->last_owner.p || n->last_uid != uid)
        n->last_owner = user_name_of(buf_str(&n->passwd), n->last_uid = uid, n->digits[0]);
    return n->last_owner;
}

struct str names_group(struct agent_names *n, gid_t gid)
{
    user_load(n);
    if (!n->last_group.p || n->last_gid != gid)
        n->last_group = user_name_of(buf_str(&n->group), n->last_gid = gid, n->digits[1]);
    return n->last_group;
}
