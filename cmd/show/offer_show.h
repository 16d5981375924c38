/* SPDX-License-Identifier: Apache-2.0 */
/* Shows offers, for the verbs offers, plan and up. */
#ifndef GP_CMD_OFFER_SHOW_H
#define GP_CMD_OFFER_SHOW_H

#include "cmd/app.h"

json_t *offers_json(const struct offer_list *l); /* new reference */
/* The table, with footnotes on currencies and on what the prices leave out. */
void offers_show(const struct offer_list *l, FILE *to);
/* The source of the price, with its age in days if it has a date: "catalogue 2026-07-20, 12 days old". Caller frees. */
char *offer_source_text(const struct offer *o);
/* The result of the verb: with the providers that have no offer. New reference. */
json_t *offers_result_json(const struct spec *spec, const struct offers_result *res);

#endif
