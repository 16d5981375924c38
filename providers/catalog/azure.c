// SPDX-License-Identifier: Apache-2.0
/* Sizes of Azure with NVIDIA GPUs and their on-demand list prices, as facts with a date: the API has the number of a
 * size's GPUs, not their model. GPUs: Microsoft's pages on sizes, 2026-06. Prices in USD, Linux: read 2026-06-18 from
 * the Retail Prices API by the Karpenter project (Azure/karpenter-provider-azure 352646f5, zz_generated.pricing.go).
 * A region that a size does not list has no known price. Sizes with other makers' GPUs are left out. Pure. */
#include "base/gp_base.h"

#include "providers/catalog/catalog.h"

#include "base/str.h"

/* clang-format off */
const struct catalog_size catalog_azure[] = {
    {"Standard_NC4as_T4_v3", "T4", 1, 16, false,
     "australiacentral 0.684 australiacentral2 0.684 australiaeast 0.684 brazilsouth 0.894 canadacentral "
     "0.584 centralindia 0.579 centralus 0.594 eastus 0.526 eastus2 0.526 francecentral 0.615 "
     "germanywestcentral 0.658 israelcentral 0.724 italynorth 0.615 japaneast 0.71 japanwest 0.768 "
     "koreacentral 0.647 malaysiawest 0.631 northcentralus 0.526 northeurope 0.587 polandcentral 0.656 "
     "southcentralus 0.631 southeastasia 0.736 southindia 0.742 swedencentral 0.558 uksouth 0.615 "
     "westeurope 0.658 westus 0.631 westus2 0.526 westus3 0.526"},
    {"Standard_NC8as_T4_v3", "T4", 1, 16, false,
     "australiacentral 0.977 australiacentral2 0.977 australiaeast 0.978 brazilsouth 1.277 canadacentral "
     "0.834 centralindia 0.827 centralus 0.849 eastus 0.752 eastus2 0.752 francecentral 0.878 "
     "germanywestcentral 0.939 israelcentral 1.034 italynorth 0.879 japaneast 1.015 japanwest 1.097 "
     "koreacentral 0.925 malaysiawest 0.902 northcentralus 0.752 northeurope 0.838 polandcentral 0.937 "
     "southcentralus 0.902 southeastasia 1.052 southindia 1.059 swedencentral 0.796 uksouth 0.88 "
     "westeurope 0.94 westus 0.902 westus2 0.752 westus3 0.752"},
    {"Standard_NC16as_T4_v3", "T4", 1, 16, false,
     "australiacentral 1.565 australiacentral2 1.565 australiaeast 1.565 brazilsouth 2.046 canadacentral "
     "1.336 centralindia 1.324 centralus 1.36 eastus 1.204 eastus2 1.204 francecentral 1.407 "
     "germanywestcentral 1.504 israelcentral 1.657 italynorth 1.408 japaneast 1.625 japanwest 1.757 "
     "koreacentral 1.481 malaysiawest 1.444 northcentralus 1.204 northeurope 1.342 polandcentral 1.501 "
     "southcentralus 1.445 southeastasia 1.685 southindia 1.697 swedencentral 1.276 uksouth 1.409 "
     "westeurope 1.505 westus 1.445 westus2 1.204 westus3 1.204"},
    {"Standard_NC64as_T4_v3", "T4", 4, 16, false,
     "australiacentral 5.645 australiacentral2 5.645 australiaeast 5.658 brazilsouth 7.383 canadacentral "
     "4.82 centralindia 4.787 centralus 4.907 eastus 4.352 eastus2 4.352 francecentral 5.077 "
     "germanywestcentral 5.428 israelcentral 5.977 italynorth 5.081 japaneast 5.875 japanwest 6.341 "
     "koreacentral 5.353 malaysiawest 5.211 northcentralus 4.352 northeurope 4.853 polandcentral 5.416 "
     "southcentralus 5.222 southeastasia 6.089 southindia 6.123 swedencentral 4.603 uksouth 5.092 "
     "westeurope 5.44 westus 5.222 westus2 4.352 westus3 4.352"},
    {"Standard_NC6s_v3", "V100", 1, 16, false,
     "australiaeast 4.234 brazilsouth 6.12 canadacentral 3.366 centralindia 4.234 centralus 3.458 eastasia "
     "4.743 eastus 3.06 eastus2 3.06 francecentral 3.58 israelcentral 4.205 japaneast 4.194 jioindiawest "
     "4.234 koreacentral 4.234 northeurope 3.305 qatarcentral 4.205 southcentralus 3.366 southeastasia "
     "4.234 switzerlandnorth 4.205 uksouth 3.589 westeurope 3.823 westus 3.978 westus2 3.06 westus3 3.06"},
    {"Standard_NC12s_v3", "V100", 2, 16, false,
     "australiaeast 8.468 brazilsouth 12.24 canadacentral 6.732 centralindia 8.468 centralus 6.916 "
     "eastasia 9.486 eastus 6.12 eastus2 6.12 francecentral 7.16 israelcentral 8.411 japaneast 8.388 "
     "jioindiawest 8.468 koreacentral 8.468 northeurope 6.61 qatarcentral 8.411 southcentralus 6.732 "
     "southeastasia 8.468 switzerlandnorth 8.411 uksouth 7.178 westeurope 7.646 westus 7.956 westus2 6.12 "
     "westus3 6.12"},
    {"Standard_NC24s_v3", "V100", 4, 16, false,
     "australiaeast 16.936 brazilsouth 24.48 canadacentral 13.464 centralindia 16.936 centralus 13.831 "
     "eastasia 18.972 eastus 12.24 eastus2 12.24 francecentral 14.321 israelcentral 16.821 japaneast "
     "16.776 jioindiawest 16.936 koreacentral 16.936 northeurope 13.219 qatarcentral 16.821 southcentralus "
     "13.464 southeastasia 16.936 switzerlandnorth 16.821 uksouth 14.356 westeurope 15.292 westus 15.912 "
     "westus2 12.24 westus3 12.24"},
    {"Standard_NC24rs_v3", "V100", 4, 16, false,
     "australiaeast 18.63 brazilsouth 26.928 canadacentral 14.81 centralindia 18.63 centralus 15.214 "
     "eastasia 20.869 eastus 13.46 eastus2 13.464 francecentral 15.753 israelcentral 18.503 japaneast "
     "18.454 jioindiawest 18.63 koreacentral 18.63 northeurope 14.541 qatarcentral 18.503 southcentralus "
     "14.8104 southeastasia 18.63 switzerlandnorth 18.503 uksouth 15.792 westeurope 16.821 westus 17.503 "
     "westus2 13.46 westus3 13.46"},
    {"Standard_ND40rs_v2", "V100-32GB", 8, 32, false,
     "eastus 22.032 southcentralus 26.438 southeastasia 30.492 westeurope 27.526 westus2 22.032"},
    {"Standard_NC24ads_A100_v4", "A100-80GB", 1, 80, false,
     "australiaeast 5.326 brazilsouth 7.346 canadacentral 4.408 centralindia 5.142 centralus 4.15 eastus "
     "3.673 eastus2 3.673 francecentral 4.591 germanywestcentral 4.775 italynorth 4.775 japaneast 5.326 "
     "jioindiacentral 5.142 jioindiawest 5.142 koreacentral 4.959 northcentralus 4.408 northeurope 4.408 "
     "polandcentral 4.775 southcentralus 4.408 southeastasia 4.775 spaincentral 4.775 swedencentral 4.775 "
     "switzerlandnorth 5.252 uksouth 4.591 westeurope 4.775 westus 4.775 westus2 3.673 westus3 3.673"},
    {"Standard_NC48ads_A100_v4", "A100-80GB", 2, 80, false,
     "australiaeast 10.652 brazilsouth 14.692 canadacentral 8.815 centralindia 10.284 centralus 8.301 "
     "eastus 7.346 eastus2 7.346 francecentral 9.183 germanywestcentral 9.55 italynorth 9.55 japaneast "
     "10.652 jioindiacentral 10.284 jioindiawest 10.284 koreacentral 9.917 northcentralus 8.815 "
     "northeurope 8.815 polandcentral 9.55 southcentralus 8.815 southeastasia 9.55 spaincentral 9.55 "
     "swedencentral 9.55 switzerlandnorth 10.505 uksouth 9.183 westeurope 9.55 westus 9.55 westus2 7.346 "
     "westus3 7.346"},
    {"Standard_NC96ads_A100_v4", "A100-80GB", 4, 80, false,
     "australiaeast 21.303 brazilsouth 29.384 canadacentral 17.63 centralindia 20.569 centralus 16.602 "
     "eastus 14.692 eastus2 14.692 francecentral 18.365 germanywestcentral 19.1 italynorth 19.1 japaneast "
     "21.303 jioindiacentral 20.569 jioindiawest 20.569 koreacentral 19.834 northcentralus 17.63 "
     "northeurope 17.63 polandcentral 19.1 southcentralus 17.63 southeastasia 19.1 spaincentral 19.1 "
     "swedencentral 19.1 switzerlandnorth 21.01 uksouth 18.365 westeurope 19.1 westus 19.1 westus2 14.692 "
     "westus3 14.692"},
    {"Standard_ND96asr_v4", "A100", 8, 40, false,
     "eastus 27.197 italynorth 35.357 southcentralus 32.63 westeurope 35.357 westus2 27.197"},
    {"Standard_ND96amsr_A100_v4", "A100-80GB", 8, 80, false,
     "australiaeast 47.516 brazilsouth 65.54 canadacentral 39.324 canadaeast 39.324 centralus 37.03 eastus "
     "32.77 eastus2 32.77 francecentral 40.962 germanynorth 55.381 italynorth 40.962 japaneast 47.517 "
     "japanwest 50.794 norwayeast 46.861 polandcentral 46.89 southafricanorth 47.844 southcentralus 39.324 "
     "southindia 49.483 spaincentral 40.962 swedencentral 40.962 switzerlandnorth 46.861 switzerlandwest "
     "60.919 uaecentral 60.919 uaenorth 46.861 uksouth 40.962 ukwest 42.929 westeurope 40.962 westus "
     "42.601 westus2 32.77 westus3 32.77"},
    {"Standard_NC40ads_H100_v5", "H100-NVL", 1, 94, false,
     "australiaeast 10.121 canadacentral 8.59 centralindia 9.772 centralus 8.585 eastus 6.98 eastus2 6.98 "
     "germanywestcentral 9.074 indonesiacentral 8.167 japaneast 10.121 jioindiacentral 9.772 jioindiawest "
     "9.772 koreacentral 9.423 koreasouth 8.725 malaysiawest 8.167 northcentralus 8.376 northeurope 8.376 "
     "southcentralus 8.38 southeastasia 9.074 spaincentral 9.074 swedencentral 9.074 switzerlandnorth "
     "9.981 uaenorth 9.98 uksouth 8.725 westeurope 9.08 westus 9.074 westus2 6.98 westus3 6.98"},
    {"Standard_NC80adis_H100_v5", "H100-NVL", 2, 94, false,
     "australiaeast 20.242 canadacentral 17.18 centralindia 19.544 centralus 17.17 eastus 13.96 eastus2 "
     "13.96 germanywestcentral 18.148 indonesiacentral 16.333 japaneast 20.242 jioindiacentral 19.544 "
     "jioindiawest 19.544 koreacentral 18.846 koreasouth 17.45 malaysiawest 16.333 northcentralus 16.752 "
     "northeurope 16.752 southcentralus 16.76 southeastasia 18.148 spaincentral 18.148 swedencentral "
     "18.148 switzerlandnorth 19.963 uaenorth 19.96 uksouth 17.45 westeurope 18.16 westus 18.148 westus2 "
     "13.96 westus3 13.96"},
    {"Standard_NCC40ads_H100_v5", "H100-NVL", 1, 94, false,
     "centralus 9.73 eastus2 8.82 southcentralus 9.73 westeurope 10.74"},
    {"Standard_ND96isr_H100_v5", "H100", 8, 80, false,
     "australiaeast 142.6 canadacentral 117.984 centralus 120.934 eastus 98.32 eastus2 98.32 japaneast "
     "142.564 japanwest 152.396 koreacentral 132.732 northcentralus 117.984 polandcentral 127.816 "
     "southafricanorth 168.672 southafricawest 186.608 southcentralus 117.968 spaincentral 127.816 "
     "swedencentral 127.816 switzerlandnorth 140.598 uaenorth 140.598 uksouth 122.9 westcentralus 117.984 "
     "westeurope 127.816 westus 127.816 westus2 98.32 westus3 98.32"},
    {"Standard_ND96is_H100_v5", "H100", 8, 80, false,
     "centralus 108.84 eastus 88.488 eastus2 88.488 japaneast 128.308 japanwest 137.156 koreacentral "
     "119.459 northcentralus 106.186 polandcentral 115.034 southcentralus 106.171 swedencentral 115.034 "
     "switzerlandnorth 126.538 uaenorth 126.538 uksouth 110.61 westcentralus 106.186 westeurope 115.034 "
     "westus 115.034 westus2 88.488 westus3 88.488"},
    {"Standard_ND96isr_H200_v5", "H200", 8, 141, false,
     "australiaeast 122.96 australiasoutheast 110.24 brazilsouth 169.6 centralus 95.824 eastus2 84.8 "
     "francecentral 106 germanywestcentral 110.24 indonesiacentral 99.216 italynorth 110.24 japaneast 106 "
     "japanwest 131.44 koreasouth 106 malaysiawest 99.216 mexicocentral 93.28 northcentralus 101.76 "
     "northeurope 101.76 norwayeast 121.264 polandcentral 130.592 southafricanorth 123.808 southeastasia "
     "110.24 spaincentral 110.24 swedencentral 110.272 uaenorth 121.264 uksouth 106 ukwest 111.088 westus "
     "110.24 westus2 84.8 westus3 84.8"},
    {"Standard_ND128isr_NDR_GB200_v6", "GB200", 4, 192, false,
     "australiaeast 156.84 australiasoutheast 151.44 brazilsouth 216.32 canadaeast 129.8 centralus 133.037 "
     "eastus 108.16 eastus2 108.16 germanywestcentral 140.6 indonesiacentral 126.54 italynorth 140.6 "
     "koreacentral 146 koreasouth 124.4 northcentralus 129.8 southindia 163.32 spaincentral 140.6 "
     "uaecentral 201.16 uksouth 135.2 westus2 108.16 westus3 108.16"},
    {"Standard_NV6ads_A10_v5", "A10", 0, 24, true,
     "australiaeast 0.658 brazilsouth 0.908 canadacentral 0.545 centralindia 0.636 centralus 0.558 "
     "eastasia 0.704 eastus 0.454 eastus2 0.454 francecentral 0.567 germanywestcentral 0.59 "
     "indonesiacentral 0.556 israelcentral 0.649 italynorth 0.59 japaneast 0.658 jioindiacentral 0.636 "
     "jioindiawest 0.636 koreacentral 0.613 koreasouth 0.567 malaysiawest 0.531 mexicocentral 0.501 "
     "northcentralus 0.545 northeurope 0.545 polandcentral 0.59 qatarcentral 0.649 southafricanorth 0.663 "
     "southcentralus 0.545 southeastasia 0.59 spaincentral 0.59 swedencentral 0.59 switzerlandnorth 0.649 "
     "uaenorth 0.649 uksouth 0.567 westeurope 0.59 westus 0.59 westus2 0.454 westus3 0.454"},
    {"Standard_NV12ads_A10_v5", "A10", 0, 24, true,
     "australiaeast 1.317 brazilsouth 1.816 canadacentral 1.09 centralindia 1.271 centralus 1.117 eastasia "
     "1.407 eastus 0.908 eastus2 0.908 francecentral 1.135 germanywestcentral 1.18 indonesiacentral 1.112 "
     "israelcentral 1.298 italynorth 1.18 japaneast 1.317 jioindiacentral 1.271 jioindiawest 1.271 "
     "koreacentral 1.226 koreasouth 1.135 malaysiawest 1.062 mexicocentral 1.002 northcentralus 1.09 "
     "northeurope 1.09 polandcentral 1.18 qatarcentral 1.298 southafricanorth 1.326 southcentralus 1.09 "
     "southeastasia 1.18 spaincentral 1.18 swedencentral 1.18 switzerlandnorth 1.298 uaenorth 1.298 "
     "uksouth 1.135 westeurope 1.18 westus 1.18 westus2 0.908 westus3 0.908"},
    {"Standard_NV18ads_A10_v5", "A10", 0, 24, true,
     "australiaeast 2.32 brazilsouth 3.2 canadacentral 1.92 centralindia 2.24 centralus 1.968 eastasia "
     "2.48 eastus 1.6 eastus2 1.6 francecentral 2 germanywestcentral 2.08 indonesiacentral 1.96 "
     "israelcentral 2.288 italynorth 2.08 japaneast 2.32 jioindiacentral 2.24 jioindiawest 2.24 "
     "koreacentral 2.16 koreasouth 2 malaysiawest 1.872 mexicocentral 1.766 northcentralus 1.92 "
     "northeurope 1.92 polandcentral 2.08 qatarcentral 2.288 southafricanorth 2.336 southcentralus 1.92 "
     "southeastasia 2.08 spaincentral 2.08 swedencentral 2.08 switzerlandnorth 2.288 uaenorth 2.288 "
     "uksouth 2 westeurope 2.08 westus 2.08 westus2 1.6 westus3 1.6"},
    {"Standard_NV36ads_A10_v5", "A10", 1, 24, true,
     "australiaeast 4.64 brazilsouth 6.4 canadacentral 3.84 centralindia 4.48 centralus 3.936 eastasia "
     "4.96 eastus 3.2 eastus2 3.2 francecentral 4 germanywestcentral 4.16 indonesiacentral 3.92 "
     "israelcentral 4.576 italynorth 4.16 japaneast 4.64 jioindiacentral 4.48 jioindiawest 4.48 "
     "koreacentral 4.32 koreasouth 4 malaysiawest 3.744 mexicocentral 3.532 northcentralus 3.84 "
     "northeurope 3.84 polandcentral 4.16 qatarcentral 4.576 southafricanorth 4.672 southcentralus 3.84 "
     "southeastasia 4.16 spaincentral 4.16 swedencentral 4.16 switzerlandnorth 4.576 uaenorth 4.576 "
     "uksouth 4 westeurope 4.16 westus 4.16 westus2 3.2 westus3 3.2"},
    {"Standard_NV36adms_A10_v5", "A10", 1, 24, true,
     "australiaeast 6.554 brazilsouth 9.04 canadacentral 5.424 centralindia 6.328 centralus 5.56 eastasia "
     "7.006 eastus 4.52 eastus2 4.52 francecentral 5.65 germanywestcentral 5.876 indonesiacentral 5.537 "
     "israelcentral 6.464 italynorth 5.876 japaneast 6.554 jioindiacentral 6.328 jioindiawest 6.328 "
     "koreacentral 6.102 koreasouth 5.65 malaysiawest 5.288 mexicocentral 4.989 northcentralus 5.424 "
     "northeurope 5.424 polandcentral 5.876 qatarcentral 6.464 southafricanorth 6.599 southcentralus 5.424 "
     "southeastasia 5.876 spaincentral 5.876 swedencentral 5.876 switzerlandnorth 6.464 uaenorth 6.464 "
     "uksouth 5.65 westeurope 5.876 westus 5.876 westus2 4.52 westus3 4.52"},
    {"Standard_NV72ads_A10_v5", "A10", 2, 24, true,
     "australiaeast 9.454 brazilsouth 13.04 canadacentral 7.824 centralindia 9.128 centralus 8.02 eastasia "
     "10.106 eastus 6.52 eastus2 6.52 francecentral 8.15 germanywestcentral 8.476 indonesiacentral 7.987 "
     "israelcentral 9.324 italynorth 8.476 japaneast 9.454 jioindiacentral 9.128 jioindiawest 9.128 "
     "koreacentral 8.802 koreasouth 8.15 malaysiawest 7.628 mexicocentral 7.196 northcentralus 7.824 "
     "northeurope 7.824 polandcentral 8.476 qatarcentral 9.324 southafricanorth 9.519 southcentralus 7.824 "
     "southeastasia 8.476 spaincentral 8.476 swedencentral 8.476 switzerlandnorth 9.324 uaenorth 9.324 "
     "uksouth 8.15 westeurope 8.476 westus 8.476 westus2 6.52 westus3 6.52"},
    {NULL, NULL, 0, 0, false, NULL}};
/* clang-format on */
const char *const catalog_azure_date = "2026-06-18";

const struct catalog_size *catalog_azure_size(const char *name) {
    for (const struct catalog_size *s = catalog_azure; s->name != NULL; s++)
        if (strcasecmp(s->name, name) == 0) return s;
    return NULL;
}

double catalog_azure_price(const char *name, const char *region) {
    const struct catalog_size *s = catalog_azure_size(name);
    GP_AUTO_STRV struct strv words = {0};
    double usd_per_h = -1;
    if (s == NULL) return -1;
    strv_split(&words, s->prices, " ");
    for (size_t i = 0; i + 1 < words.n; i += 2)
        if (strcmp(words.v[i], region) == 0 && !str_to_double(words.v[i + 1], &usd_per_h)) return -1;
    return usd_per_h;
}
