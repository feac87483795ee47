"""Java for programs that are over before its second compiler has paid for itself."""

QUICK_OPTION = "-XX:TieredStopAtLevel=1"

# The same for the environment of whatever starts Java, however deep.
QUICK = {"JDK_JAVA_OPTIONS": QUICK_OPTION}
