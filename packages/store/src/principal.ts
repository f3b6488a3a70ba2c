/** Who asks. `user` sees their own; `operator` also what is not theirs, where it is asked for. */
export type Principal = {
  readonly tenantId: string
  readonly userId: string
  readonly role: 'user' | 'operator' | 'service'
}
