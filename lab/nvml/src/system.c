/* NVML: initialisation, versions, error texts, and what a machine without S-class units or HICs answers. */
#include "call.h"
#include "driver.h"
#include "libcuda.h"

#include <stdio.h>

NVML_API nvml_return nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return call_init("nvmlInit");
}

NVML_API nvml_return nvmlInit_v2(void)
{
    return call_init("nvmlInit");
}

NVML_API nvml_return nvmlInit(void)
{
    return call_init("nvmlInit");
}

NVML_API nvml_return nvmlShutdown(void)
{
    return call_shutdown();
}

NVML_API const char *nvmlErrorString(nvml_return code)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires restart",
        "The operating system has blocked the request.", "Driver/library version mismatch",
        "GPU Is Currently In Use By Another Process", "Insufficient Memory", "No data",
        "Operation Not Available As ECC Is Enabled", "Insufficient Resources", "Frequency Not Supported",
        "Argument Version Mismatch", "Deprecated", "Not Ready", "GPU Not Found", "Invalid State"};
    if (code < 0 || (size_t)code >= sizeof(texts) / sizeof(texts[0]))
        return "Unknown Error";
    return texts[code];
}

NVML_API nvml_return nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    CALL(call_system(__func__));
    return call_text(version, length, driver_version(call.machine));
}

NVML_API nvml_return nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    char text[TEXT_SIZE + 16];
    CALL(call_system(__func__));
    snprintf(text, sizeof(text), "%u.%s", driver_cuda_version(call.machine) / 1000, driver_version(call.machine));
    return call_text(version, length, text);
}

NVML_API nvml_return nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    CALL(call_system(__func__));
    REQUIRE(version);
    if (!libcuda_version(version)) /* without CUDA's library, the real one does not know */
        *version = (int)driver_cuda_version(call.machine);
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

NVML_API nvml_return nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[32], command[256];
    CALL(call_system(__func__));
    REQUIRE(name && length > 0);
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    size_t got = fread(command, 1, sizeof(command) - 1, file); /* its first word ends with a zero byte */
    fclose(file);
    command[got] = '\0';
    snprintf(name, length, "%s", command); /* NVML cuts a name that does not fit */
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlUnitGetCount(unsigned *count)
{
    CALL(call_system(__func__));
    REQUIRE(count);
    *count = 0;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlGetExcludedDeviceCount(unsigned *count)
{
    CALL(call_system(__func__));
    REQUIRE(count);
    *count = 0;
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlSystemGetHicVersion(unsigned *count, void *entries)
{
    (void)entries;
    CALL(call_system(__func__));
    REQUIRE(count);
    *count = 0;
    return NVML_SUCCESS;
}
