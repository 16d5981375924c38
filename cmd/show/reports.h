/* SPDX-License-Identifier: Apache-2.0 */
/* The options --report, --certificate and --certificate-ttl of the verbs that have a report: one struct in the
 * verb's own options, one macro for its rows. */
#ifndef GP_CMD_REPORTS_H
#define GP_CMD_REPORTS_H

#include "cmd/verbs.h"

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
     .help = "write a signed certificate for each ready node (*.json: one file)"},                                    \
    {                                                                                                                 \
        .name = "certificate-ttl", .type = OPT_DURATION, .offset = offsetof(S, member.certificate_ms), .arg = "TIME", \
        .min = 60000, .help = "validity of the certificates, from the validation on (default 24h)"                    \
    }
#define REPORT_ROWS(S, member)                                         \
    {.name = "report",                                                 \
     .type = OPT_LIST,                                                 \
     .offset = offsetof(S, member.files),                              \
     .arg = "FORM=FILE",                                               \
     .help = "write the report as " REPORT_FORMS "; may be repeated"}, \
        CERTIFICATE_ROWS(S, member)

/* Checks that the forms are known and the folders can be written, and creates the certificates' folder. Call it before
 * any change at a provider. nodes: of the report to come; 0: not known yet. */
int report_opts_check(const struct report_opts *o, int nodes, struct gp_error *err);
/* Writes the requested files; prints each path and, for certificates, the key's fingerprint on stderr. */
int report_opts_write(struct invocation *inv, const struct report_opts *o, const struct report *r,
                      struct gp_error *err);
/* The same after a verb that returned ret_r: if that is an error, it is returned, and an own error is printed. */
int report_opts_after(struct invocation *inv, const struct report_opts *o, const struct report *r, int ret_r,
                      struct gp_error *err);

/* report --history, as text. */
void show_history(const json_t *history, FILE *to);

#endif
