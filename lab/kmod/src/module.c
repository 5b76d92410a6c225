/* The smallest file that the module tools accept as a kernel module: .modinfo, exported and imported symbols.
 *
 * Compiled once per module, driver version and kernel release, with NAME, VERSION, SRCVERSION, VERMAGIC, DEPENDS,
 * LICENSE and, where they apply, EXPORTS (a name) and IMPORTS (a name). depmod finds dependencies by these names.
 */
#define INFO(field, value) \
    static const char info_##field[] __attribute__((section(".modinfo"), used, aligned(1))) = #field "=" value

INFO(license, LICENSE);
INFO(version, VERSION);
INFO(srcversion, SRCVERSION);
INFO(description, "lab module, without code");
INFO(depends, DEPENDS);
INFO(name, NAME);
INFO(vermagic, VERMAGIC);

#ifdef EXPORTS
static const char exported[] __attribute__((section("__ksymtab_strings"), used, aligned(1))) = EXPORTS;
#endif
#ifdef IMPORTS
extern int IMPORTS;
const int *imported(void);
const int *imported(void)
{
    return &IMPORTS;
}
#endif
