/* SPDX-License-Identifier: Apache-2.0 */
/* GPU types and prices that an API reports only with a key or a download of hundreds of megabytes. Static data. */
#ifndef GP_CATALOG_H
#define GP_CATALOG_H

#include <stdbool.h>

struct catalog_row {
    const char *type, *gpu_model;
    int gpus;           /* 0: a fraction of one */
    const char *region; /* region of the price; "": no price known */
    double usd_per_h;   /* per node, on-demand, Linux; negative: unknown */
};
extern const struct catalog_row catalog_aws[]; /* ends with type NULL */
extern const char *const catalog_aws_date;     /* when the prices were read */

const struct catalog_row *catalog_aws_type(const char *type);   /* NULL: not in the catalogue */
double catalog_aws_price(const char *type, const char *region); /* negative: unknown */
double catalog_aws_disk_price(int gib, const char *region);     /* USD/h of a gp3 volume; negative: unknown */

extern const struct catalog_row catalog_google[]; /* types and GPUs; prices by the function */
extern const char *const catalog_google_date;
const struct catalog_row *catalog_google_type(const char *type);
double catalog_google_price(const char *type, const char *region, bool spot); /* negative: unknown */
/* USD/h of a disk of the type "pd-balanced"; negative: unknown. */
double catalog_google_disk_price(const char *type, int gib, const char *region);

/* Names of the GPUs that RunPod rents; NULL ends. Prices come from its API. */
extern const char *const catalog_runpod_gpus[];

struct catalog_size {
    const char *name, *gpu_model;
    int gpus, gpu_gib;  /* gpus 0: a fraction of one; memory of a whole one */
    bool vgpu;          /* its GPU is a virtual one: it needs the cloud's GRID driver */
    const char *prices; /* on-demand, Linux, USD per hour: "REGION PRICE REGION PRICE" */
};
extern const struct catalog_size catalog_azure[]; /* ends with name NULL */
extern const char *const catalog_azure_date;
const struct catalog_size *catalog_azure_size(const char *name);  /* any case; NULL: not in the catalogue */
double catalog_azure_price(const char *name, const char *region); /* negative: unknown */

/* Alibaba Cloud ECS, for a plan when its price service does not answer: a row for each type and region. */
extern const struct catalog_row catalog_alibaba[]; /* ends with type NULL */
extern const char *const catalog_alibaba_date;
double catalog_alibaba_price(const char *type, const char *region); /* negative: unknown */
int catalog_alibaba_gpus(const char *type);                         /* -1: not in the catalogue */

#endif
