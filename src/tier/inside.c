/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/inside.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#define CGROUP "sys/fs/cgroup/"

enum { HIERARCHIES_MAX = 8, CPUINFO_MAX = 8 << 20, TEXT_MAX = 64 << 10, PERIOD_USEC = 100000, TICK_USEC = 10000 };

struct inside_machine {
    cpu_set_t cpus; /* that coved may use */
    uint64_t memory_bytes;
    struct buf cpuinfo;
    char hierarchies[HIERARCHIES_MAX][64]; /* of version 1 */
    uint32_t boxes[CPU_SETSIZE];           /* with fewer processors than there are, by processor */
};

/* ---- the machine ---- */

static void inside_read_hierarchies(struct inside_machine *m)
{
    AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);
    size_t n = 0;
    if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", &b) < 0)
        return;
    struct str rest = buf_str(&b), line, number, names, one;
    while (n < HIERARCHIES_MAX && str_split(&rest, '\n', &line)) {
        if (!str_split(&line, ':', &number) || !str_split(&line, ':', &names) || names.n >= sizeof(m->hierarchies[0]))
            continue;
        bool is_wanted = false;
        for (struct str all = names; str_split(&all, ',', &one);)
            is_wanted |= str_word(one, "memory cpu cpuacct cpuset pids") >= 0;
        if (is_wanted)
            (void)snprintf(m->hierarchies[n++], sizeof(m->hierarchies[0]), "%.*s", STR_ARG(names));
    }
}

int inside_machine_new(struct inside_machine **ret_machine)
{
    struct inside_machine *m = mem_new(struct inside_machine);
    struct sysinfo info;
    buf_init(&m->cpuinfo, CPUINFO_MAX);
    int r = sysinfo(&info) < 0 || sched_getaffinity(0, sizeof(m->cpus), &m->cpus) < 0 ? -errno : 0;
    r = r ? r : fd_read_file(AT_FDCWD, "/proc/cpuinfo", &m->cpuinfo);
    if (r < 0) {
        buf_fini(&m->cpuinfo);
        mem_free(m);
        return r;
    }
    m->memory_bytes = (uint64_t)info.totalram * info.mem_unit;
    inside_read_hierarchies(m);
    *ret_machine = m;
    return 0;
}

const char *inside_hierarchy(const struct inside_machine *m, int version, size_t k)
{
    if (version != 1)
        return k == 0 ? "" : NULL;
    return k < HIERARCHIES_MAX && m->hierarchies[k][0] ? m->hierarchies[k] : NULL;
}

/* ---- files ---- */

static int inside_write(const struct inside *f, const char *path, struct str text)
{
    struct stat st;
    AUTO_CLOSE int fd = openat(f->tree_fd, path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0444);
    if (fd < 0 || pwrite(fd, text.p, text.n, 0) != (ssize_t)text.n || fstat(fd, &st) < 0 ||
        (st.st_size != (off_t)text.n && ftruncate(fd, (off_t)text.n) < 0))
        return errno ? -errno : -EIO;
    return 0;
}

PRINTF_LIKE(3, 4) static int inside_put(const struct inside *f, const char *path, const char *fmt, ...)
{
    char text[2048];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    assert(n > 0 && (size_t)n < sizeof(text));
    return inside_write(f, path, str_n(text, (size_t)n));
}

/* "0-3,7" and a newline. */
static void inside_print_cpus(struct buf *b, const cpu_set_t *cpus)
{
    for (int c = 0, first; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, cpus))
            continue;
        for (first = c; c + 1 < CPU_SETSIZE && CPU_ISSET(c + 1, cpus);)
            c++;
        (void)buf_printf(b, c > first ? "%s%d-%d" : "%s%d", buf_len(b) ? "," : "", first, c);
    }
    (void)buf_append_char(b, '\n');
}

/* Of the machine's text, the paragraphs ("processor : N" and what follows) of these. */
static int inside_write_cpuinfo(const struct inside *f, const struct inside_machine *m, const cpu_set_t *cpus)
{
    AUTO_BUF struct buf b = BUF_INIT(CPUINFO_MAX);
    struct str rest = buf_str(&m->cpuinfo), line;
    bool is_theirs = true;
    if (cpus == &m->cpus)
        return inside_write(f, "proc/cpuinfo", rest);
    while (str_split(&rest, '\n', &line)) {
        uint64_t cpu;
        struct str value = line, name;
        if (str_split(&value, ':', &name) && str_starts(name, STR("processor")))
            is_theirs = str_to_u64(str_trim(value), &cpu) == 0 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, cpus);
        if (is_theirs && (line.n || rest.n)) {
            (void)buf_append_str(&b, line);
            (void)buf_append_char(&b, '\n');
        }
    }
    return buf_error(&b) ? buf_error(&b) : inside_write(f, "proc/cpuinfo", buf_str(&b));
}

int inside_boot(const struct inside *f)
{
    char id[ID_UUID_LEN + 1];
    id_uuid(id);
    return inside_put(f, "proc/boot_id", "%s\n", id);
}

static uint64_t inside_memory(const struct inside_machine *m, const struct cgroup_limits *l)
{
    return l->memory_bytes ? MIN(l->memory_bytes, m->memory_bytes) : m->memory_bytes;
}

static const cpu_set_t *inside_cpus(const struct inside *f, const struct inside_machine *m)
{
    return CPU_COUNT(&f->cpus) ? &f->cpus : &m->cpus;
}

/* ---- processors ---- */

static void inside_give_back(struct inside *f, struct inside_machine *m)
{
    for (int c = 0; c < CPU_SETSIZE; c++)
        m->boxes[c] -= CPU_ISSET(c, &f->cpus) && m->boxes[c];
    CPU_ZERO(&f->cpus);
}

static void inside_choose(struct inside *f, struct inside_machine *m, uint32_t cpu_milli)
{
    int wanted = (int)((cpu_milli + 999) / 1000);
    if (!wanted || wanted >= CPU_COUNT(&m->cpus))
        wanted = 0; /* all */
    if (CPU_COUNT(&f->cpus) == wanted)
        return;
    inside_give_back(f, m);
    while (wanted-- > 0) {
        int best = -1;
        for (int c = 0; c < CPU_SETSIZE; c++)
            if (CPU_ISSET(c, &m->cpus) && !CPU_ISSET(c, &f->cpus) && (best < 0 || m->boxes[c] < m->boxes[best]))
                best = c;
        CPU_SET(best, &f->cpus);
        m->boxes[best]++;
    }
}

void inside_adopt(struct inside *f, struct inside_machine *m, int tree_fd, pid_t pid)
{
    cpu_set_t cpus;
    *f = (struct inside){.tree_fd = tree_fd};
    if (pid <= 0 || sched_getaffinity(pid, sizeof(cpus), &cpus) < 0 || CPU_EQUAL(&cpus, &m->cpus))
        return;
    CPU_AND(&f->cpus, &cpus, &m->cpus); /* a sandbox may have changed its own */
    for (int c = 0; c < CPU_SETSIZE; c++)
        m->boxes[c] += (uint32_t) !!CPU_ISSET(c, &f->cpus);
}

void inside_close(struct inside *f, struct inside_machine *m)
{
    inside_give_back(f, m);
    f->tree_fd = fd_close(f->tree_fd);
}

/* ---- what follows from limits ---- */

static int inside_limit_v1(const struct inside *f, const struct inside_machine *m, const struct cgroup_limits *l,
                           const char *cpus)
{
    const unsigned long long none = 9223372036854771712ULL, memory = l->memory_bytes ? l->memory_bytes : none;
    int r = 0;
    for (size_t k = 0; r == 0 && inside_hierarchy(m, 1, k); k++) {
        char path[96];
        (void)snprintf(path, sizeof(path), CGROUP "%s", m->hierarchies[k]);
        for (char *name = path + strlen(CGROUP); r == 0 && name;) { /* "cpu,cpuacct", and each of the two */
            r = symlinkat(".", f->tree_fd, path) < 0 && errno != EEXIST ? -errno : 0;
            char *comma = strrchr(name, ',');
            if (comma) {
                char last[64];
                (void)snprintf(last, sizeof(last), CGROUP "%s", comma + 1);
                r = symlinkat(".", f->tree_fd, last) < 0 && errno != EEXIST ? -errno : 0;
                *comma = 0;
            } else {
                name = NULL;
            }
        }
    }
    r = r ? r : inside_put(f, CGROUP "memory.limit_in_bytes", "%llu\n", memory);
    r = r ? r : inside_put(f, CGROUP "memory.memsw.limit_in_bytes", "%llu\n", memory);
    r = r ? r : inside_put(f, CGROUP "memory.soft_limit_in_bytes", "%llu\n", none);
    r = r ? r : inside_put(f, CGROUP "memory.use_hierarchy", "1\n");
    r = r ? r
          : inside_put(f, CGROUP "cpu.cfs_quota_us", "%lld\n",
                       l->cpu_milli ? (long long)l->cpu_milli * (PERIOD_USEC / 1000) : -1);
    r = r ? r : inside_put(f, CGROUP "cpu.cfs_period_us", "%d\n", PERIOD_USEC);
    r = r ? r : inside_put(f, CGROUP "cpu.shares", "1024\n");
    r = r ? r : inside_put(f, CGROUP "cpuset.cpus", "%s", cpus);
    r = r ? r : inside_put(f, CGROUP "cpuset.effective_cpus", "%s", cpus);
    r = r ? r : inside_put(f, CGROUP "cpuset.mems", "0\n");
    return r;
}

static int inside_limit_v2(const struct inside *f, const struct cgroup_limits *l, const char *cpus)
{
    char memory[24] = "max", quota[24] = "max";
    if (l->memory_bytes)
        (void)snprintf(memory, sizeof(memory), "%llu", (unsigned long long)l->memory_bytes);
    if (l->cpu_milli)
        (void)snprintf(quota, sizeof(quota), "%llu", (unsigned long long)l->cpu_milli * (PERIOD_USEC / 1000));
    int r = inside_put(f, CGROUP "cgroup.controllers", "cpuset cpu memory pids\n");
    r = r ? r : inside_put(f, CGROUP "memory.max", "%s\n", memory);
    r = r ? r : inside_put(f, CGROUP "memory.high", "max\n");
    r = r ? r : inside_put(f, CGROUP "memory.swap.max", "%s\n", l->memory_bytes ? "0" : "max");
    r = r ? r : inside_put(f, CGROUP "cpu.max", "%s %d\n", quota, PERIOD_USEC);
    r = r ? r : inside_put(f, CGROUP "cpu.weight", "100\n");
    r = r ? r : inside_put(f, CGROUP "cpuset.cpus.effective", "%s", cpus);
    return r ? r : inside_put(f, CGROUP "cpuset.mems.effective", "0\n");
}

static int inside_sample_all(const struct inside *f, const struct inside_machine *m, int version,
                             const struct cgroup_limits *l, const struct cgroup_usage *u, usec_t age);

int inside_limit(struct inside *f, struct inside_machine *m, int version, const struct cgroup_limits *limits, pid_t pid)
{
    const struct cgroup_usage nothing = {0};
    AUTO_BUF struct buf cpus = BUF_INIT(TEXT_MAX);
    inside_choose(f, m, limits->cpu_milli);
    const cpu_set_t *mine = inside_cpus(f, m);
    inside_print_cpus(&cpus, mine);
    (void)buf_append_char(&cpus, 0);
    int r = pid > 0 && sched_setaffinity(pid, sizeof(*mine), mine) < 0 ? -errno : 0;
    r = r ? r : inside_put(f, "sys/devices/system/cpu/online", "%s", buf_data(&cpus));
    r = r ? r : inside_write_cpuinfo(f, m, mine);
    r = r              ? r
        : version == 1 ? inside_limit_v1(f, m, limits, buf_data(&cpus))
                       : inside_limit_v2(f, limits, buf_data(&cpus));
    r = r ? r : inside_put(f, CGROUP "pids.max", limits->pids ? "%u\n" : "max\n", limits->pids);
    return r ? r : inside_sample_all(f, m, version, limits, &nothing, 0);
}

/* ---- what moves ---- */

/* Of one width: see invariant 2. */
static int inside_write_meminfo(const struct inside *f, uint64_t total, const struct cgroup_usage *u)
{
    const uint64_t used = MIN(u->memory_bytes, total), cache = MIN(u->cache_bytes, used);
    const uint64_t shared = MIN(u->shmem_bytes, cache), free = total - used;
    const struct {
        const char *name;
        uint64_t bytes;
    } lines[] = {
        {"MemTotal:", total},
        {"MemFree:", free},
        {"MemAvailable:", free + cache - shared},
        {"Buffers:", 0},
        {"Cached:", cache},
        {"SwapCached:", 0},
        {"Active:", u->active_bytes},
        {"Inactive:", u->inactive_bytes},
        {"SwapTotal:", 0},
        {"SwapFree:", 0},
        {"Shmem:", shared},
    };
    AUTO_BUF struct buf b = BUF_INIT(4096);
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        (void)buf_printf(&b, "%-14s %10llu kB\n", lines[i].name, (unsigned long long)lines[i].bytes / 1024);
    return inside_write(f, "proc/meminfo", buf_str(&b));
}

/* All of the time that was used counts as a program's: of version 1 no other figure is exact. */
static int inside_write_stat(const struct inside *f, const cpu_set_t *cpus, uint64_t used_usec, usec_t age)
{
    const uint64_t n = (uint64_t)CPU_COUNT(cpus), used = used_usec / TICK_USEC, all = MAX(age / TICK_USEC * n, used);
    struct timespec up;
    (void)clock_gettime(CLOCK_BOOTTIME, &up);
    AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX * 2);
    (void)buf_printf(&b, "cpu  %llu 0 0 %llu 0 0 0 0 0 0\n", (unsigned long long)used,
                     (unsigned long long)(all - used));
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, cpus))
            (void)buf_printf(&b, "cpu%d %llu 0 0 %llu 0 0 0 0 0 0\n", c, (unsigned long long)(used / n),
                             (unsigned long long)((all - used) / n));
    /* Start times of processes count from the start of the machine, so that has to be its own. */
    (void)buf_printf(&b, "intr 0\nctxt 0\nbtime %llu\nprocesses 0\nprocs_running 1\nprocs_blocked 0\n",
                     (unsigned long long)(clock_real() / 1000000 - (usec_t)up.tv_sec));
    return buf_error(&b) ? buf_error(&b) : inside_write(f, "proc/stat", buf_str(&b));
}

static int inside_write_memory_stat(const struct inside *f, int version, const struct cgroup_usage *u)
{
    const unsigned long long cache = u->cache_bytes, rest = u->memory_bytes - MIN(u->memory_bytes, u->cache_bytes);
    const unsigned long long shared = u->shmem_bytes, on = u->active_file_bytes, off = u->inactive_file_bytes;
    if (version == 2)
        return inside_put(f, CGROUP "memory.stat",
                          "anon %llu\nfile %llu\nshmem %llu\ninactive_file %llu\nactive_file %llu\n", rest, cache,
                          shared, off, on);
    return inside_put(f, CGROUP "memory.stat",
                      "cache %llu\nrss %llu\nshmem %llu\ninactive_file %llu\nactive_file %llu\ntotal_cache %llu\n"
                      "total_rss %llu\ntotal_inactive_file %llu\ntotal_active_file %llu\n",
                      cache, rest, shared, off, on, cache, rest, off, on);
}

static int inside_sample_all(const struct inside *f, const struct inside_machine *m, int version,
                             const struct cgroup_limits *l, const struct cgroup_usage *u, usec_t age)
{
    const unsigned long long bytes = u->memory_bytes, cpu = u->cpu_usec;
    int r = inside_write_meminfo(f, inside_memory(m, l), u);
    r = r ? r : inside_write_stat(f, inside_cpus(f, m), u->cpu_usec, age);
    r = r ? r
          : inside_put(f, "proc/loadavg", "%.2f %.2f %.2f 1/%u %u\n", f->load[0], f->load[1], f->load[2],
                       MAX(u->pids, 1u), MAX(u->pids, 1u));
    r = r ? r : inside_put(f, version == 1 ? CGROUP "memory.usage_in_bytes" : CGROUP "memory.current", "%llu\n", bytes);
    r = r ? r : inside_write_memory_stat(f, version, u);
    r = r              ? r
        : version == 1 ? inside_put(f, CGROUP "cpuacct.usage", "%llu\n", cpu * 1000)
                       : inside_put(f, CGROUP "cpu.stat", "usage_usec %llu\n", cpu);
    return r ? r : inside_put(f, CGROUP "pids.current", "%u\n", u->pids);
}

void inside_sample(struct inside *f, const struct inside_machine *m, int version, const struct cgroup_limits *limits,
                   const struct cgroup_usage *usage, usec_t age)
{
    static const double seconds[] = {60, 300, 900};
    const usec_t now = clock_mono();
    if (f->tree_fd < 0)
        return;
    if (f->sampled && now > f->sampled) {
        double since = (double)(now - f->sampled);
        double busy = usage->cpu_usec > f->cpu_usec ? (double)(usage->cpu_usec - f->cpu_usec) / since : 0;
        for (size_t i = 0; i < ARRAY_SIZE(seconds); i++)
            f->load[i] += (busy - f->load[i]) * since / (since + seconds[i] * 1e6);
    }
    f->sampled = now;
    f->cpu_usec = usage->cpu_usec;
    int ignored UNUSED = inside_sample_all(f, m, version, limits, usage, age); /* a full tmpfs: older ones stay */
}
