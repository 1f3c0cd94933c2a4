# SCRIPT as a string constant VARIABLE in the header OUTPUT. In parts, since compilers need not take
# literals longer than 64 KiB, and older ones did not.
file(READ "${SCRIPT}" text)
get_filename_component(name "${SCRIPT}" NAME)
string(LENGTH "${text}" length)
set(parts "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 part)
  string(APPEND parts "    R\"KB_SCRIPT(${part})KB_SCRIPT\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE "${OUTPUT}" "// Made from ${name}.\n#pragma once\n\nnamespace kbundle::builder {\n\n\
inline constexpr char ${VARIABLE}[] =\n${parts}    ;\n\n}  // namespace kbundle::builder\n")
