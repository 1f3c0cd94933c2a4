# Puts beside the Python package what a build makes: the library, and the Python wrappers that an op
# family brings along (kernels/<family>/jax.py becomes families/<family>.py, and jax_<more>.py there
# families/<family>_<more>.py).
file(COPY_FILE "${LIBRARY}" "${PACKAGE}/libkbundle.so.new")
file(RENAME "${PACKAGE}/libkbundle.so.new" "${PACKAGE}/libkbundle.so")  # never half a file
file(GLOB wrappers "${KERNELS}/*/jax.py" "${KERNELS}/*/jax_*.py")
file(REMOVE_RECURSE "${PACKAGE}/families")
file(MAKE_DIRECTORY "${PACKAGE}/families")
foreach(wrapper ${wrappers})
  get_filename_component(folder "${wrapper}" DIRECTORY)
  get_filename_component(family "${folder}" NAME)
  get_filename_component(file "${wrapper}" NAME)
  string(REGEX REPLACE "^jax" "${family}" module "${file}")
  configure_file("${wrapper}" "${PACKAGE}/families/${module}" COPYONLY)
endforeach()
