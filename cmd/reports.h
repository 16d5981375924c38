/* SPDX-License-Identifier: Apache-2.0 */
/* The options by which a verb writes its report into files and gives certificates: --report, --certificate,
 * --certificate-ttl. One struct in the verb's own options, one macro for its rows. */
#ifndef GP_CMD_REPORTS_H
#define GP_CMD_REPORTS_H

#include "verbs.h"

#include "output/report_forms.h"

struct report_opts {
    struct opt_list files; /* "FORM=FILE" each */
    const char *certificate;
    int64_t certificate_ms; /* 0: a day */
};

#define CERTIFICATE_ROWS(S, member)                                                                                   \
    {.name = "certificate",                                                                                           \
     .type = OPT_TEXT,                                                                                                \
     .offset = offsetof(S, member.certificate),                                                                       \
     .arg = "DIR",                                                                                                    \
     .help = "a signed certificate for each ready node (*.json: one file)"},                                          \
    {                                                                                                                 \
        .name = "certificate-ttl", .type = OPT_DURATION, .offset = offsetof(S, member.certificate_ms), .arg = "TIME", \
        .min = 60000, .help = "how long it holds, from the validation on (default 24h)"                               \
    }
#define REPORT_ROWS(S, member)                              \
    {.name = "report",                                      \
     .type = OPT_LIST,                                      \
     .offset = offsetof(S, member.files),                   \
     .arg = "FORM=FILE",                                    \
     .help = "the report as " REPORT_FORMS "; may repeat"}, \
        CERTIFICATE_ROWS(S, member)

/* Before anything is done: forms that there are, folders that are there. */
int report_opts_check(const struct report_opts *o, struct gp_error *err);
/* Writes what was asked for; says each file and, for certificates, the key's fingerprint on stderr. */
int report_opts_write(struct invocation *inv, const struct report_opts *o, const struct report *r,
                      struct gp_error *err);
/* The same after a verb that may have failed (ret_r): its own error stays the one that is returned. */
int report_opts_after(struct invocation *inv, const struct report_opts *o, const struct report *r, int ret_r,
                      struct gp_error *err);

/* report --history, as text. */
void show_history(const json_t *history, FILE *to);

#endif
