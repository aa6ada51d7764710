/* SPDX-License-Identifier: Apache-2.0 */
#include "image/options.h"
#include "base/str.h"
#include "image/job.h"

#define OPTIONS_IDS 65536U

enum which { ROOT_FD, JOB_FD, UID, IDS_BASE, MAX_BYTES, MAX_ENTRIES, TIMEOUT_S, STALL_S, N_OPTIONS };

static const struct {
    const char *name;
    bool needed;
    uint64_t least, most, absent;
} table[N_OPTIONS] = {
    [ROOT_FD] = {"--root-fd", true, 3, 65535, 0},
    [JOB_FD] = {"--job-fd", true, 3, 65535, 0},
    [UID] = {"--uid", true, 1, UINT32_MAX - 1, 0},
    [IDS_BASE] = {"--ids-base", true, OPTIONS_IDS, UINT32_MAX - OPTIONS_IDS, 0},
    [MAX_BYTES] = {"--max-bytes", false, 1, INT64_MAX, JOB_BYTES_DEFAULT},
    [MAX_ENTRIES] = {"--max-entries", false, 1, 100000000, JOB_ENTRIES_DEFAULT},
    [TIMEOUT_S] = {"--timeout-s", false, 1, 86400, JOB_TIMEOUT_S_DEFAULT},
    [STALL_S] = {"--stall-s", false, 1, 3600, JOB_STALL_S_DEFAULT},
};

static int options_find(const char *name)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (strcmp(table[i].name, name) == 0)
            return i;
    return -1;
}

int image_options_parse(int argc, char *const *argv, struct image_options *ret_options, struct err *err)
{
    uint64_t values[N_OPTIONS];
    bool given[N_OPTIONS] = {false};
    const char *ca = NULL;
    for (int i = 0; i < N_OPTIONS; i++)
        values[i] = table[i].absent;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        int which = options_find(argv[i]);
        if (!value)
            return err_set(err, ERR_INVALID_ARGUMENT, "%.40s needs a value", argv[i]);
        if (strcmp(argv[i], "--ca") == 0) {
            ca = value;
            continue;
        }
        if (which < 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "no option %.40s", argv[i]);
        if (str_to_u64(str_of(value), &values[which]) < 0 || values[which] < table[which].least ||
            values[which] > table[which].most)
            return err_set(err, ERR_INVALID_ARGUMENT, "%s: not a number from %llu to %llu", argv[i],
                           (unsigned long long)table[which].least, (unsigned long long)table[which].most);
        given[which] = true;
    }
    for (int i = 0; i < N_OPTIONS; i++)
        if (table[i].needed && !given[i])
            return err_set(err, ERR_INVALID_ARGUMENT, "%s is missing", table[i].name);
    *ret_options = (struct image_options){.root_fd = (int)values[ROOT_FD],
                                          .job_fd = (int)values[JOB_FD],
                                          .uid = (uid_t)values[UID],
                                          .ids_base = (uid_t)values[IDS_BASE],
                                          .max_bytes = values[MAX_BYTES],
                                          .max_entries = values[MAX_ENTRIES],
                                          .timeout_s = (unsigned)values[TIMEOUT_S],
                                          .stall_s = (unsigned)values[STALL_S],
                                          .ca = ca};
    return 0;
}
