# Puts beside the Python package what a build makes: the library, and the Python wrappers that an op
# family brings along (kernels/<family>/jax.py becomes families/<family>.py).
file(COPY_FILE "${LIBRARY}" "${PACKAGE}/libkbundle.so.new")
file(RENAME "${PACKAGE}/libkbundle.so.new" "${PACKAGE}/libkbundle.so")  # never half a file
file(GLOB wrappers "${KERNELS}/*/jax.py")
file(REMOVE_RECURSE "${PACKAGE}/families")
file(MAKE_DIRECTORY "${PACKAGE}/families")
foreach(wrapper ${wrappers})
  get_filename_component(folder "${wrapper}" DIRECTORY)
  get_filename_component(family "${folder}" NAME)
  configure_file("${wrapper}" "${PACKAGE}/families/${family}.py" COPYONLY)
endforeach()
