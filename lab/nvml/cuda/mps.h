/* Being a client of MPS: the simulated control program (lab/mps) says which server a process has, and its ceilings. */
#ifndef GPUSIM_CUDA_MPS_H
#define GPUSIM_CUDA_MPS_H

#include <stdint.h>

/* Become a client, where CUDA_MPS_PIPE_DIRECTORY names a folder with a control daemon; as in CUDA, this process goes on
 * without MPS where nobody answers there. */
void mps_connect(void);

/* Bytes of a GPU that this process may have, UINT64_MAX where MPS limits nothing. */
uint64_t mps_limit(const char *gpu_uuid);

#endif
