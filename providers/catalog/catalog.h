/* SPDX-License-Identifier: Apache-2.0 */
/* Offers and prices that no API tells without a key or a download of hundreds of megabytes. */
#ifndef GP_CATALOG_H
#define GP_CATALOG_H

struct catalog_row {
    const char *type, *gpu_model;
    int gpus;           /* 0: a fraction of one */
    const char *region; /* where the price holds; "": no price known */
    double usd_per_h;   /* per node, on-demand, Linux; negative: not known */
};
extern const struct catalog_row catalog_aws[]; /* ends with type NULL */
extern const char *const catalog_aws_date;     /* when the prices were read */

const struct catalog_row *catalog_aws_type(const char *type);   /* NULL: not in the catalogue */
double catalog_aws_price(const char *type, const char *region); /* negative: not known */

#endif
